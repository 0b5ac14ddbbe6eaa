/// \file
/// What a replica asks of its GPU, one call after the other, and CUDA graphs made of it without a
/// word from the caller. Invariants: the calls take effect in their order; between two `flush` they
/// are one segment. A segment that came before is not run call by call: its calls are compared with
/// those of the last time, numbers among their arguments are taken over, and `flush` launches all
/// of it as one graph. A segment that turns out to be another one is run as it stands, and one that
/// the driver takes for no graph is run call by call. In checked mode each call is made at once and
/// waited for.
#pragma once

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

#include "lockstep/core/config.hpp"
#include "lockstep/core/work.hpp"
#include "lockstep/core/work_times.hpp"
#include "lockstep/devices/cuda/command.hpp"
#include "lockstep/devices/cuda/libraries/driver.hpp"

namespace lockstep::detail::cuda {

class Segment;
class TimedCommands;

/// The calls of one stream. Used by one thread at a time, with the GPU's context current.
class Commands {
 public:
  LOCKSTEP_DECL explicit Commands(CUstream stream, bool graphs = true);
  LOCKSTEP_DECL ~Commands();
  Commands(const Commands&) = delete;
  Commands& operator=(const Commands&) = delete;

  /// Checked mode: from now on each call is made at once, and `wait` waits for it and returns what
  /// the driver said. An error then names the call that caused it.
  LOCKSTEP_COLD_DECL void check_each(std::function<CUresult()> wait);
  /// For a profile: from now on `times` is logged how long each call takes; null: no more. `wait` as
  /// in `check_each`. \throws UsageError in checked mode.
  LOCKSTEP_COLD_DECL void measure(WorkTimes* times, std::function<CUresult()> wait);

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
    enqueue(std::move(c));
  }
  /// `from` is pinned, and keeps its content until the next `wait`.
  LOCKSTEP_DECL void copy_in(CUdeviceptr to, const void* from, std::size_t bytes);
  /// `to` is pinned, and has the bytes after the next `wait`.
  LOCKSTEP_DECL void copy_out(void* to, CUdeviceptr from, std::size_t bytes);
  LOCKSTEP_DECL void copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes);
  LOCKSTEP_DECL void clear(CUdeviceptr p, std::size_t bytes);
  /// `run(stream)`: a library's call, made of nothing that is not in `words`: two calls with the
  /// same words do the same. It must be one that a graph can capture. `name` is for messages, and
  /// outlives the call.
  template <class F>
  void call(const std::array<std::uint64_t, 8>& words, F&& run,
            const char* name = "a library's call") {
    Command c;
    c.words = words;
    c.name = name;
    if (matches_segment(c)) return;
    c.run = std::forward<F>(run);  // which takes memory
    run_now(std::move(c));
  }

  /// Flushes, then calls `run(stream)`, which enqueues library calls on the stream directly. A
  /// profile measures them as `name`. Checked mode waits until the stream is idle and throws an
  /// error that has `name`.
  LOCKSTEP_DECL void run_uncaptured(const std::function<void(CUstream)>& run, const char* name);
  bool measures() const { return timed_ != nullptr; }

  /// Hands all that was said to the GPU.
  LOCKSTEP_DECL void flush();
  /// Flushes, and returns when the GPU has done it all.
  LOCKSTEP_DECL void wait();
  /// After an error: forgets what was said and not handed over.
  LOCKSTEP_DECL void abandon() noexcept;

  /// While it lives, each call is made at once and none is remembered: for what is done only once,
  /// such as a measurement.
  class Eager {
   public:
    LOCKSTEP_DECL explicit Eager(Commands& commands);
    ~Eager() { commands_.eager_ = before_; }
    Eager(const Eager&) = delete;
    Eager& operator=(const Eager&) = delete;

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
  LOCKSTEP_DECL std::size_t segments() const;
  LOCKSTEP_DECL std::size_t graphs() const;

  /// Fewer calls are not worth a graph; more segments than these are not kept. A step has as many as it
  /// has exchanges, and one more.
  static constexpr std::size_t min_commands = 3, max_segments = 256;
  /// Whether it was said why a segment cannot be a graph: once in a process.
  static inline std::atomic<bool> logged{false};

 private:
  static std::uint64_t address(const void* p) { return reinterpret_cast<std::uint64_t>(p); }
  LOCKSTEP_DECL static Command of(Command::Kind kind, std::initializer_list<std::uint64_t> words);

  LOCKSTEP_DECL void enqueue(Command c);

  /// Whether the call is the next one of a known segment; it is left to `flush` then.
  LOCKSTEP_DECL bool matches_segment(const Command& c);
  LOCKSTEP_COLD_DECL void run_checked(Command& c) const;
  LOCKSTEP_DECL void run_now(Command c);
  LOCKSTEP_DECL void reset() noexcept;

  LOCKSTEP_DECL void begin_segment(const Command& first);

  /// Goes over to another segment that begins with all that was said, if there is one.
  template <class Fits>
  bool switch_segment(const Fits& fits);
  LOCKSTEP_DECL bool switch_to_segment_with(const Command& next);
  LOCKSTEP_DECL bool switch_to_segment_of_length(std::size_t length);

  /// What was only compared so far is run, and what follows is run at once.
  LOCKSTEP_DECL void leave_segment();

  LOCKSTEP_COLD_DECL void store_segment();

  CUstream stream_;
  bool graphs_, eager_ = false;
  std::function<CUresult()> wait_;  // for each call, in checked mode
  Work work_;
  std::unique_ptr<TimedCommands> timed_;  // of a profile
  std::function<CUresult()> wait_for_timed_;
  std::vector<std::unique_ptr<Segment>> segments_;
  std::vector<Command> executed_;  // run already
  Segment* matched_ = nullptr;
  std::uint64_t uses_ = 0;
  std::size_t position_ = 0;  // calls of matched_ that were said, and not run
};

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/commands.ipp"
#endif
