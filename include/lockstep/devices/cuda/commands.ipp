#pragma once

#include "lockstep/devices/cuda/commands.hpp"

#include <algorithm>

#include "lockstep/core/format_text.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/devices/cuda/cuda_graph.hpp"
#include "lockstep/devices/cuda/timed_commands.hpp"

namespace lockstep::detail::cuda {

/// A stored sequence of commands with the arguments of its last occurrence.
///
///     stored --launch--> captured: exec_ is ready; changed arguments are updated in place
///                   +--> disabled: capture or instantiation failed; runs call by call from now on
class Segment {
 public:
  explicit Segment(std::vector<Command> c) : commands(std::move(c)), stale_(commands.size()) {}

  std::vector<Command> commands;
  std::uint64_t last_use = 0;

  bool has_graph() const { return static_cast<bool>(exec_); }
  /// Copies the arguments of a matching command and marks its graph node as stale.
  void update_arguments(std::size_t i, const Command& c) {
    if (c.kind != Command::Kind::kernel || commands[i].arguments == c.arguments) return;
    commands[i].arguments = c.arguments;
    stale_[i] = true;
  }
  void run(std::size_t count, CUstream stream) {
    for (std::size_t i = 0; i < count; ++i) commands[i].execute(stream);
  }
  /// Runs the whole segment, as a graph where possible.
  void launch(CUstream stream, bool graphs) {
    if (!graphs || is_disabled_ || !launch_graph(stream)) run(commands.size(), stream);
  }

 private:
  /// Returns false if the segment cannot be captured; none of it has run then, and it runs call by
  /// call from now on, so a command's error appears there. \throws DeviceError if an earlier kernel
  /// has failed: then every call fails.
  bool launch_graph(CUstream stream) {
    try {
      if (exec_)
        update();
      else
        capture(stream);
      exec_.launch(stream);
      return true;
    } catch (const DeviceError& error) {
      check_stream(stream);
      disable_graph(error.what());
      return false;
    }
  }
  void disable_graph(const char* why) {
    is_disabled_ = true;
    exec_ = GraphExec();
    graph_ = Graph();
    if (!Commands::logged.exchange(true))
      log(LogLevel::warning,
          format_text("cuda: {} calls cannot be launched as one graph and run one by one, which is "
                      "slower: {}",
                      commands.size(), why));
  }
  /// Captures the commands and keeps each kernel's node, whose arguments `update` changes.
  void capture(CUstream stream) {
    const CaptureLock lock;
    // Only kernels get a node: other commands match only if all of their arguments are equal.
    nodes_.assign(commands.size(), nullptr);
    Graph graph(stream, [&] {
      for (std::size_t i = 0; i < commands.size(); ++i) {
        commands[i].execute(stream);
        if (commands[i].kind == Command::Kind::kernel) nodes_[i] = last_node(stream);
      }
    });
    exec_ = GraphExec(graph);
    graph_ = std::move(graph);
    std::fill(stale_.begin(), stale_.end(), false);
  }
  /// Writes the stale arguments into the executable graph.
  void update() {
    for (std::size_t i = 0; i < commands.size(); ++i) {
      if (!stale_[i]) continue;
      Command& c = commands[i];
      auto pointers = c.arguments.pointers();
      CUDA_KERNEL_NODE_PARAMS params{};
      params.func = c.function;
      params.gridDimX = c.grid.blocks[0];
      params.gridDimY = c.grid.blocks[1];
      params.gridDimZ = c.grid.blocks[2];
      params.blockDimX = c.grid.threads[0];
      params.blockDimY = c.grid.threads[1];
      params.blockDimZ = c.grid.threads[2];
      params.kernelParams = pointers.data();
      check(driver().cuGraphExecKernelNodeSetParams(exec_.get(), nodes_[i], &params),
            "updating a graph's kernel arguments");
      stale_[i] = false;
    }
  }

  bool is_disabled_ = false;
  std::vector<bool> stale_;
  std::vector<CUgraphNode> nodes_;
  Graph graph_;
  GraphExec exec_;
};

Commands::Commands(CUstream stream, bool graphs) : stream_(stream), graphs_(graphs) {}

Commands::~Commands() = default;

void Commands::check_each(std::function<CUresult()> wait) {
  flush();
  eager_ = true;
  wait_ = std::move(wait);
}

void Commands::measure(WorkTimes* times, std::function<CUresult()> wait) {
  if (wait_)
    throw UsageError(
        "cuda: LOCKSTEP_CUDA_CHECK is 1, and times in checked mode are not those of training; "
        "unset "
        "it to profile");
  if (const auto ends = std::move(timed_)) ends->run(stream_, graphs_, wait_for_timed_);
  flush();
  if (times != nullptr) timed_ = std::make_unique<TimedCommands>(*times);
  wait_for_timed_ = std::move(wait);
}

void Commands::copy_in(CUdeviceptr to, const void* from, std::size_t bytes) {
  if (bytes > 0) enqueue(make_command(Command::Kind::copy_in, {to, address(from), bytes}));
}

void Commands::copy_out(void* to, CUdeviceptr from, std::size_t bytes) {
  if (bytes > 0) enqueue(make_command(Command::Kind::copy_out, {address(to), from, bytes}));
}

void Commands::copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  if (bytes > 0) enqueue(make_command(Command::Kind::copy, {to, from, bytes}));
}

void Commands::clear(CUdeviceptr p, std::size_t bytes) {
  if (bytes > 0) enqueue(make_command(Command::Kind::clear, {p, bytes}));
}

void Commands::run_uncaptured(const std::function<void(CUstream)>& run, const char* name) {
  flush();
  if (timed_ != nullptr) return timed_->run_uncaptured(stream_, run, name, work_, wait_for_timed_);
  run(stream_);
  if (!wait_) return;
  Command c;
  c.name = name;
  c.run = [](CUstream) {};
  run_checked(c);
}

void Commands::flush() {
  // In every outcome: commands that were submitted, or failed, are not submitted again.
  struct ResetOnExit {
    Commands* commands;
    ~ResetOnExit() { commands->reset(); }
  } reset_on_exit{this};
  if (timed_ != nullptr) timed_->run(stream_, graphs_, wait_for_timed_);
  if (matched_ != nullptr) {
    if (position_ == matched_->commands.size() || switch_to_segment_of_length(position_)) {
      matched_->launch(stream_, graphs_);
      matched_->last_use = ++uses_;
    } else {
      leave_segment();
    }
  }
  // An executed segment will be matched the next time.
  if (executed_.size() >= min_commands) store_segment();
}

void Commands::wait() {
  flush();
  check(driver().cuStreamSynchronize(stream_), "waiting for the GPU");
}

void Commands::abandon() noexcept { reset(); }

Commands::Eager::Eager(Commands& commands) : commands_(commands), before_(commands.eager_) {
  commands.flush();
  commands.eager_ = true;
}

std::size_t Commands::segments() const { return segments_.size(); }

std::size_t Commands::graphs() const {
  return static_cast<std::size_t>(std::count_if(segments_.begin(), segments_.end(),
                                                [](const auto& t) { return t->has_graph(); }));
}

Command Commands::make_command(Command::Kind kind, std::initializer_list<std::uint64_t> words) {
  Command c;
  c.kind = kind;
  std::copy(words.begin(), words.end(), c.words.begin());
  return c;
}

void Commands::enqueue(Command c) {
  if (!matches_segment(c)) run_now(std::move(c));
}

// Each branch either compares the command and returns true, or leaves it to run_now.
bool Commands::matches_segment(const Command& c) {
  if (eager_ || timed_ != nullptr) return false;
  if (position_ == 0 && executed_.empty()) begin_segment(c);
  if (matched_ == nullptr) return false;
  if ((position_ < matched_->commands.size() && c.is_like(matched_->commands[position_])) ||
      switch_to_segment_with(c)) {
    matched_->update_arguments(position_++, c);
    return true;
  }
  leave_segment();
  return false;
}

void Commands::run_checked(Command& c) const {
  std::string why;
  try {
    c.execute(stream_);
    const CUresult result = wait_();
    if (result == CUDA_SUCCESS) return;
    why = describe(result);
    // Has its own message and its own type, on which callers act.
  } catch (const OutOfMemory&) {
    throw;
  } catch (const DeviceError& error) {
    why = error.what();
  }
  throw DeviceError("cuda: {}{} failed: {}", c.title(), lockstep::describe(work_), why);
}

void Commands::run_now(Command c) {
  // Checked mode, profile, and normal execution exclude each other.
  if (wait_) return run_checked(c);
  if (timed_ != nullptr && !eager_) return timed_->add(std::move(c), work_);
  c.execute(stream_);
  if (!eager_) executed_.push_back(std::move(c));
}

void Commands::reset() noexcept {
  if (timed_ != nullptr) timed_->discard();
  executed_.clear();
  matched_ = nullptr;
  position_ = 0;
}

void Commands::begin_segment(const Command& first) {
  for (const auto& segment : segments_)
    if (first.is_like(segment->commands.front())) {
      matched_ = segment.get();
      return;
    }
}

template <class Fits>
bool Commands::switch_segment(const Fits& fits) {
  for (const auto& segment : segments_) {
    if (segment.get() == matched_ || !fits(*segment)) continue;
    // Both segments must agree on everything matched so far.
    const bool same = std::equal(
        matched_->commands.begin(),
        matched_->commands.begin() + static_cast<std::ptrdiff_t>(position_),
        segment->commands.begin(), [](const Command& a, const Command& b) { return a.is_like(b); });
    if (!same) continue;
    for (std::size_t i = 0; i < position_; ++i) segment->update_arguments(i, matched_->commands[i]);
    matched_ = segment.get();
    return true;
  }
  return false;
}

bool Commands::switch_to_segment_with(const Command& next) {
  return switch_segment([&](const Segment& t) {
    return t.commands.size() > position_ && next.is_like(t.commands[position_]);
  });
}

bool Commands::switch_to_segment_of_length(std::size_t length) {
  return switch_segment([&](const Segment& t) { return t.commands.size() == length; });
}

void Commands::leave_segment() {
  matched_->run(position_, stream_);
  executed_.assign(matched_->commands.begin(),
                   matched_->commands.begin() + static_cast<std::ptrdiff_t>(position_));
  matched_ = nullptr;
}

void Commands::store_segment() {
  if (segments_.size() == max_segments)
    segments_.erase(
        std::min_element(segments_.begin(), segments_.end(),
                         [](const auto& a, const auto& b) { return a->last_use < b->last_use; }));
  segments_.push_back(std::make_unique<Segment>(std::move(executed_)));
  segments_.back()->last_use = ++uses_;
}

}  // namespace lockstep::detail::cuda
