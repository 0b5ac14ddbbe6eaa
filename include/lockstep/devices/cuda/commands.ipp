#pragma once

#include "lockstep/devices/cuda/commands.hpp"

#include <algorithm>

#include "lockstep/core/fmt_core.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/devices/cuda/cuda_graph.hpp"
#include "lockstep/devices/cuda/timed_commands.hpp"

namespace lockstep::detail::cuda {

/// A segment: its calls with the arguments of the last time.
class Tape {
 public:
  explicit Tape(std::vector<Command> c) : commands(std::move(c)), stale_(commands.size()) {}

  std::vector<Command> commands;
  std::uint64_t last_use = 0;

  bool has_graph() const { return static_cast<bool>(ready_); }
  void take(std::size_t i, const Command& c) {
    if (c.kind != Command::Kind::kernel || commands[i].arguments == c.arguments) return;
    commands[i].arguments = c.arguments;
    stale_[i] = true;
  }
  void run(std::size_t count, CUstream stream) {
    for (std::size_t i = 0; i < count; ++i) commands[i].execute(stream);
  }
  void launch(CUstream stream, bool graphs) {
    if (!graphs || cannot_be_graph_ || !launch_graph(stream)) run(commands.size(), stream);
  }

 private:
  /// False: what cannot be a graph is run call by call from then on. Nothing of it has run, and
  /// an error of a call shows itself there. \throws DeviceError if an earlier kernel has failed:
  /// then every call fails.
  bool launch_graph(CUstream stream) {
    try {
      if (ready_)
        refresh();
      else
        record(stream);
      ready_.launch(stream);
      return true;
    } catch (const DeviceError& error) {
      refuse_earlier(stream);
      give_up_graph(error.what());
      return false;
    }
  }
  void give_up_graph(const char* why) {
    cannot_be_graph_ = true;
    ready_ = ReadyGraph();
    graph_ = Graph();
    if (!Commands::told.exchange(true))
      log(LogLevel::warning,
          fmt::format(
              "cuda: {} calls cannot be launched as one graph, and are made one by one, which is "
              "slower: {}",
              commands.size(), why));
  }
  void record(CUstream stream) {
    const Undisturbed undisturbed;
    nodes_.assign(commands.size(), nullptr);
    Graph graph(stream, [&] {
      for (std::size_t i = 0; i < commands.size(); ++i) {
        commands[i].execute(stream);
        if (commands[i].kind == Command::Kind::kernel) nodes_[i] = last_node(stream);
      }
    });
    ready_ = ReadyGraph(graph);
    graph_ = std::move(graph);
    std::fill(stale_.begin(), stale_.end(), false);
  }
  void refresh() {
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
      check(driver().cuGraphExecKernelNodeSetParams(ready_.get(), nodes_[i], &params),
            "changing a graph's numbers");
      stale_[i] = false;
    }
  }

  bool cannot_be_graph_ = false;
  std::vector<bool> stale_;
  std::vector<CUgraphNode> nodes_;
  Graph graph_;
  ReadyGraph ready_;
};

Commands::Commands(CUstream stream, bool graphs) : stream_(stream), graphs_(graphs) {}

Commands::~Commands() = default;

void Commands::check_each(std::function<CUresult()> wait) {
  flush();
  at_once_ = true;
  wait_ = std::move(wait);
}

void Commands::measure(WorkTimes* times, std::function<CUresult()> wait) {
  if (wait_)
    throw UsageError(
        "cuda: LOCKSTEP_CUDA_CHECK is 1, and times of checked mode say nothing of training; "
        "unset "
        "it to profile");
  if (const auto ends = std::move(timed_)) ends->run(stream_, graphs_, wait_for_timed_);
  flush();
  if (times != nullptr) timed_ = std::make_unique<TimedCommands>(*times);
  wait_for_timed_ = std::move(wait);
}

void Commands::copy_in(CUdeviceptr to, const void* from, std::size_t bytes) {
  if (bytes > 0) say(of(Command::Kind::copy_in, {to, address(from), bytes}));
}

void Commands::copy_out(void* to, CUdeviceptr from, std::size_t bytes) {
  if (bytes > 0) say(of(Command::Kind::copy_out, {address(to), from, bytes}));
}

void Commands::copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  if (bytes > 0) say(of(Command::Kind::copy, {to, from, bytes}));
}

void Commands::clear(CUdeviceptr p, std::size_t bytes) {
  if (bytes > 0) say(of(Command::Kind::clear, {p, bytes}));
}

void Commands::make_apart(const std::function<void(CUstream)>& run, const char* name) {
  flush();
  if (timed_ != nullptr) return timed_->run_apart(stream_, run, name, work_, wait_for_timed_);
  run(stream_);
  if (!wait_) return;
  Command c;
  c.name = name;
  c.run = [](CUstream) {};
  run_checked(c);
}

void Commands::flush() {
  // Whatever happens: what was handed over, or failed, is not handed over again.
  struct Ending {
    Commands* commands;
    ~Ending() { commands->begin_anew(); }
  } ending{this};
  if (timed_ != nullptr) timed_->run(stream_, graphs_, wait_for_timed_);
  if (walking_ != nullptr) {
    if (position_ == walking_->commands.size() || change_to_tape_of_length(position_)) {
      walking_->launch(stream_, graphs_);
      walking_->last_use = ++uses_;
    } else {
      leave_tape();
    }
  }
  if (said_.size() >= least_commands) remember();
}

void Commands::wait() {
  flush();
  check(driver().cuStreamSynchronize(stream_), "waiting for the GPU");
}

void Commands::abandon() noexcept { begin_anew(); }

Commands::AtOnce::AtOnce(Commands& commands) : commands_(commands), before_(commands.at_once_) {
  commands.flush();
  commands.at_once_ = true;
}

std::size_t Commands::tapes() const { return tapes_.size(); }

std::size_t Commands::graphs() const {
  return static_cast<std::size_t>(
      std::count_if(tapes_.begin(), tapes_.end(), [](const auto& t) { return t->has_graph(); }));
}

Command Commands::of(Command::Kind kind, std::initializer_list<std::uint64_t> words) {
  Command c;
  c.kind = kind;
  std::copy(words.begin(), words.end(), c.words.begin());
  return c;
}

void Commands::say(Command c) {
  if (!follows(c)) run_now(std::move(c));
}

bool Commands::follows(const Command& c) {
  if (at_once_ || timed_ != nullptr) return false;
  if (position_ == 0 && said_.empty()) begin(c);
  if (walking_ == nullptr) return false;
  if ((position_ < walking_->commands.size() && c.is_like(walking_->commands[position_])) ||
      change_to_tape_with(c)) {
    walking_->take(position_++, c);
    return true;
  }
  leave_tape();
  return false;
}

void Commands::run_checked(Command& c) const {
  std::string why;
  try {
    c.execute(stream_);
    const CUresult result = wait_();
    if (result == CUDA_SUCCESS) return;
    why = describe(result);
  } catch (const OutOfMemory&) {
    throw;
  } catch (const DeviceError& error) {
    why = error.what();
  }
  throw DeviceError("cuda: {}{} failed: {}", c.title(), lockstep::describe(work_), why);
}

void Commands::run_now(Command c) {
  if (wait_) return run_checked(c);
  if (timed_ != nullptr && !at_once_) return timed_->add(std::move(c), work_);
  c.execute(stream_);
  if (!at_once_) said_.push_back(std::move(c));
}

void Commands::begin_anew() noexcept {
  if (timed_ != nullptr) timed_->forget();
  said_.clear();
  walking_ = nullptr;
  position_ = 0;
}

void Commands::begin(const Command& first) {
  for (const auto& tape : tapes_)
    if (first.is_like(tape->commands.front())) {
      walking_ = tape.get();
      return;
    }
}

template <class Fits>
bool Commands::change_tape(const Fits& fits) {
  for (const auto& tape : tapes_) {
    if (tape.get() == walking_ || !fits(*tape)) continue;
    const bool same = std::equal(
        walking_->commands.begin(),
        walking_->commands.begin() + static_cast<std::ptrdiff_t>(position_), tape->commands.begin(),
        [](const Command& a, const Command& b) { return a.is_like(b); });
    if (!same) continue;
    for (std::size_t i = 0; i < position_; ++i) tape->take(i, walking_->commands[i]);
    walking_ = tape.get();
    return true;
  }
  return false;
}

bool Commands::change_to_tape_with(const Command& next) {
  return change_tape([&](const Tape& t) {
    return t.commands.size() > position_ && next.is_like(t.commands[position_]);
  });
}

bool Commands::change_to_tape_of_length(std::size_t length) {
  return change_tape([&](const Tape& t) { return t.commands.size() == length; });
}

void Commands::leave_tape() {
  walking_->run(position_, stream_);
  said_.assign(walking_->commands.begin(),
               walking_->commands.begin() + static_cast<std::ptrdiff_t>(position_));
  walking_ = nullptr;
}

void Commands::remember() {
  if (tapes_.size() == most_tapes)
    tapes_.erase(std::min_element(tapes_.begin(), tapes_.end(), [](const auto& a, const auto& b) {
      return a->last_use < b->last_use;
    }));
  tapes_.push_back(std::make_unique<Tape>(std::move(said_)));
  tapes_.back()->last_use = ++uses_;
}

}  // namespace lockstep::detail::cuda
