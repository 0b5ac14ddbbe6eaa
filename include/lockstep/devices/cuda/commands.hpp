/// \file
/// What a replica asks of its GPU, one call after the other, and CUDA graphs made of it without a
/// word from the caller. Invariants: the calls take effect in their order; between two `flush` they
/// are one segment. A segment that came before is not run call by call: its calls are compared with
/// those of the last time, numbers among their arguments are taken over, and `flush` launches all
/// of it as one graph. A segment that turns out to be another one is run as it stands, and one that
/// the driver takes for no graph is run call by call. In checked mode each call is made at once and
/// waited for.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/log.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/core/work.hpp"
#include "lockstep/devices/cuda/command.hpp"
#include "lockstep/devices/cuda/graph.hpp"
#include "lockstep/devices/cuda/libraries/driver.hpp"
#include "lockstep/devices/cuda/timed_commands.hpp"

namespace lockstep::detail::cuda {

/// The calls of one stream. Used by one thread at a time, with the GPU's context current.
class Commands {
 public:
  explicit Commands(CUstream stream, bool graphs = true) : stream_(stream), graphs_(graphs) {}
  Commands(const Commands&) = delete;
  Commands& operator=(const Commands&) = delete;

  /// Checked mode: from now on each call is made at once, and `wait` waits for it and returns what
  /// the driver said. An error then names the call that caused it.
  [[gnu::cold]] void check_each(std::function<CUresult()> wait) {
    flush();
    at_once_ = true;
    wait_ = std::move(wait);
  }
  /// For a profile: from now on `times` is told how long each call takes; null: no more. `wait` as
  /// in `check_each`. \throws UsageError in checked mode.
  [[gnu::cold]] void measure(WorkTimes* times, std::function<CUresult()> wait) {
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

  /// What the next calls belong to: for errors and profiles.
  void begin_work(const Work& work) { work_ = work; }
  const Work& work() const { return work_; }

  template <class... Ts>
  void launch(CUfunction function, const Grid& grid, const Ts&... arguments) {
    Command c;
    c.kind = Command::Kind::kernel;
    c.function = function;
    c.grid = grid;
    c.arguments = Arguments(arguments...);
    say(std::move(c));
  }
  /// `from` is pinned, and keeps its content until the next `wait`.
  void copy_in(CUdeviceptr to, const void* from, std::size_t bytes) {
    if (bytes > 0) say(of(Command::Kind::copy_in, {to, address(from), bytes}));
  }
  /// `to` is pinned, and has the bytes after the next `wait`.
  void copy_out(void* to, CUdeviceptr from, std::size_t bytes) {
    if (bytes > 0) say(of(Command::Kind::copy_out, {address(to), from, bytes}));
  }
  void copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
    if (bytes > 0) say(of(Command::Kind::copy, {to, from, bytes}));
  }
  void clear(CUdeviceptr p, std::size_t bytes) {
    if (bytes > 0) say(of(Command::Kind::clear, {p, bytes}));
  }
  /// `run(stream)`: a library's call, made of nothing that is not in `words`: two calls with the
  /// same words do the same. It must be one that a graph can record. `name` is for messages, and
  /// outlives the call.
  template <class F>
  void call(const std::array<std::uint64_t, 8>& words, F&& run,
            const char* name = "a library's call") {
    Command c;
    c.words = words;
    c.name = name;
    if (follows(c)) return;
    c.run = std::forward<F>(run);  // which takes memory
    run_now(std::move(c));
  }
  /// Flushes, then calls `run(stream)`, which enqueues library calls on the stream directly. A
  /// profile measures them as `name`. Checked mode waits until the stream is idle and throws an
  /// error that has `name`.
  template <class F>
  void make_apart(const F& run, const char* name) {
    flush();
    if (timed_ != nullptr) return timed_->run_apart(stream_, run, name, work_, wait_for_timed_);
    run(stream_);
    if (!wait_) return;
    Command c;
    c.name = name;
    c.run = [](CUstream) {};
    run_checked(c);
  }
  bool measures() const { return timed_ != nullptr; }

  /// Hands all that was said to the GPU.
  void flush() {
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
  /// Flushes, and returns when the GPU has done it all.
  void wait() {
    flush();
    check(driver().cuStreamSynchronize(stream_), "waiting for the GPU");
  }
  /// After an error: forgets what was said and not handed over.
  void abandon() noexcept { begin_anew(); }
  /// While it lives, each call is made at once and none is remembered: for what is done only once,
  /// such as a measurement.
  class AtOnce {
   public:
    explicit AtOnce(Commands& commands) : commands_(commands), before_(commands.at_once_) {
      commands.flush();
      commands.at_once_ = true;
    }
    ~AtOnce() { commands_.at_once_ = before_; }
    AtOnce(const AtOnce&) = delete;
    AtOnce& operator=(const AtOnce&) = delete;

   private:
    Commands& commands_;
    bool before_;
  };

  /// While it lives, checked mode does not wait: a stream that is recorded cannot be waited for,
  /// and times with waits say nothing.
  class Unchecked {
   public:
    explicit Unchecked(Commands& commands)
        : commands_(commands), wait_(std::exchange(commands.wait_, nullptr)) {}
    ~Unchecked() { commands_.wait_ = std::move(wait_); }
    Unchecked(const Unchecked&) = delete;
    Unchecked& operator=(const Unchecked&) = delete;

   private:
    Commands& commands_;
    std::function<CUresult()> wait_;
  };

  CUstream stream() const { return stream_; }
  /// Segments that are known, and how many of them are graphs.
  std::size_t tapes() const { return tapes_.size(); }
  std::size_t graphs() const {
    return static_cast<std::size_t>(
        std::count_if(tapes_.begin(), tapes_.end(), [](const auto& t) { return t->has_graph(); }));
  }

  /// Fewer calls are not worth a graph; more tapes than these are not kept. A step has as many as it
  /// has exchanges, and one more.
  static constexpr std::size_t least_commands = 3, most_tapes = 256;
  /// Whether it was said why a segment cannot be a graph: once in a process.
  static inline std::atomic<bool> told{false};

 private:
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
    [[gnu::cold]] void give_up_graph(const char* why) {
      cannot_be_graph_ = true;
      ready_ = ReadyGraph();
      graph_ = Graph();
      if (!told.exchange(true))
        log(LogLevel::warning, text({"cuda: ", commands.size(),
                                     " calls cannot be launched as one graph, and are made one by "
                                     "one, which is slower: ",
                                     why}));
    }
    [[gnu::cold]] void record(CUstream stream) {
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

  static std::uint64_t address(const void* p) { return reinterpret_cast<std::uint64_t>(p); }
  static Command of(Command::Kind kind, std::initializer_list<std::uint64_t> words) {
    Command c;
    c.kind = kind;
    std::copy(words.begin(), words.end(), c.words.begin());
    return c;
  }

  void say(Command c) {
    if (!follows(c)) run_now(std::move(c));
  }

  /// Whether the call is the next one of a known segment; it is left to `flush` then.
  bool follows(const Command& c) {
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
  [[gnu::cold]] void run_checked(Command& c) const {
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
    throw DeviceError({"cuda: ", c.title(), lockstep::describe(work_), " failed: ", why});
  }
  void run_now(Command c) {
    if (wait_) return run_checked(c);
    if (timed_ != nullptr && !at_once_) return timed_->add(std::move(c), work_);
    c.execute(stream_);
    if (!at_once_) said_.push_back(std::move(c));
  }
  void begin_anew() noexcept {
    if (timed_ != nullptr) timed_->forget();
    said_.clear();
    walking_ = nullptr;
    position_ = 0;
  }

  void begin(const Command& first) {
    for (const auto& tape : tapes_)
      if (first.is_like(tape->commands.front())) {
        walking_ = tape.get();
        return;
      }
  }

  /// Goes over to another tape that begins with all that was said, if there is one.
  template <class Fits>
  bool change_tape(const Fits& fits) {
    for (const auto& tape : tapes_) {
      if (tape.get() == walking_ || !fits(*tape)) continue;
      const bool same = std::equal(
          walking_->commands.begin(),
          walking_->commands.begin() + static_cast<std::ptrdiff_t>(position_),
          tape->commands.begin(), [](const Command& a, const Command& b) { return a.is_like(b); });
      if (!same) continue;
      for (std::size_t i = 0; i < position_; ++i) tape->take(i, walking_->commands[i]);
      walking_ = tape.get();
      return true;
    }
    return false;
  }
  bool change_to_tape_with(const Command& next) {
    return change_tape([&](const Tape& t) {
      return t.commands.size() > position_ && next.is_like(t.commands[position_]);
    });
  }
  bool change_to_tape_of_length(std::size_t length) {
    return change_tape([&](const Tape& t) { return t.commands.size() == length; });
  }

  /// What was only compared so far is run, and what follows is run at once.
  void leave_tape() {
    walking_->run(position_, stream_);
    said_.assign(walking_->commands.begin(),
                 walking_->commands.begin() + static_cast<std::ptrdiff_t>(position_));
    walking_ = nullptr;
  }

  [[gnu::cold]] void remember() {
    if (tapes_.size() == most_tapes)
      tapes_.erase(std::min_element(tapes_.begin(), tapes_.end(), [](const auto& a, const auto& b) {
        return a->last_use < b->last_use;
      }));
    tapes_.push_back(std::make_unique<Tape>(std::move(said_)));
    tapes_.back()->last_use = ++uses_;
  }

  CUstream stream_;
  bool graphs_, at_once_ = false;
  std::function<CUresult()> wait_;  // for each call, in checked mode
  Work work_;
  std::unique_ptr<TimedCommands> timed_;  // of a profile
  std::function<CUresult()> wait_for_timed_;
  std::vector<std::unique_ptr<Tape>> tapes_;
  std::vector<Command> said_;  // run already
  Tape* walking_ = nullptr;
  std::uint64_t uses_ = 0;
  std::size_t position_ = 0;  // calls of walking_ that were said, and not run
};

}  // namespace lockstep::detail::cuda
