/// \file
/// Command recording: what a replica enqueues on its GPU, replayed as CUDA graphs without the
/// caller's help. Invariants: commands take effect in order; the commands between two `flush` calls
/// are a segment. A segment that repeats is not run command by command: its commands are compared
/// with the stored ones, changed kernel arguments are copied over, and `flush` launches all of it
/// as one graph. Checked mode runs each command at once and waits for it.
///
///                 no stored segment begins like this
///       idle ------------------------------------------> executing: commands run at once;
///         |                                                  ^      flush stores a new segment
///         | a stored segment begins like this                |
///         v                 no stored segment continues so:  |
///      matching ---------------------------------------------+
///         |    commands are only compared       run the matched ones
///         | flush, and all commands of a segment matched
///         v
///      launch: first time capture and instantiate, later update kernel arguments
///              -> cuGraphLaunch; a segment that cannot be captured runs call by call
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

/// The command queue of one stream. Used by one thread at a time, with the GPU's context current.
class Commands {
 public:
  /// Without `graphs` every segment runs command by command.
  LOCKSTEP_DECL explicit Commands(CUstream stream, bool graphs = true);
  LOCKSTEP_DECL ~Commands();
  Commands(const Commands&) = delete;
  Commands& operator=(const Commands&) = delete;

  /// Turns on checked mode: each command runs at once, and `wait` waits for it and returns the
  /// driver's result. An error then names the command that caused it.
  LOCKSTEP_COLD_DECL void check_each(std::function<CUresult()> wait);
  /// Turns profiling on: `times` receives the time of each command. Null turns it off. `wait` as in
  /// `check_each`. \throws UsageError in checked mode.
  LOCKSTEP_COLD_DECL void measure(WorkTimes* times, std::function<CUresult()> wait);

  /// Attributes the following commands to `work`, for errors and profiles.
  void begin_work(const Work& work) { work_ = work; }
  const Work& work() const { return work_; }

  /// Enqueues a kernel; arguments are copied.
  template <class... Ts>
  void launch(CUfunction function, const Grid& grid, const Ts&... arguments) {
    Command c;
    c.kind = Command::Kind::kernel;
    c.function = function;
    c.grid = grid;
    c.arguments = Arguments(arguments...);
    enqueue(std::move(c));
  }
  /// Enqueues a copy to the GPU. `from` is pinned and must not change before the next `wait`.
  LOCKSTEP_DECL void copy_in(CUdeviceptr to, const void* from, std::size_t bytes);
  /// Enqueues a copy to the host. `to` is pinned and valid after the next `wait`.
  LOCKSTEP_DECL void copy_out(void* to, CUdeviceptr from, std::size_t bytes);
  /// Enqueues a copy on the GPU.
  LOCKSTEP_DECL void copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes);
  /// Enqueues a memset to 0.
  LOCKSTEP_DECL void clear(CUdeviceptr p, std::size_t bytes);
  /// Enqueues a library call, `run(stream)`, that depends only on `words`: two calls with equal
  /// words do the same. It must be capturable. `name` is for messages and must outlive the command.
  template <class F>
  void call(const std::array<std::uint64_t, 8>& words, F&& run,
            const char* name = "a library's call") {
    Command c;
    c.words = words;
    c.name = name;
    if (matches_segment(c)) return;
    c.run = std::forward<F>(run);  // may allocate, so only for a call that does not match
    run_now(std::move(c));
  }

  /// Flushes, then calls `run(stream)`, which enqueues library calls on the stream directly. A
  /// profile measures them as `name`. Checked mode waits until the stream is idle and throws an
  /// error that contains `name`.
  LOCKSTEP_DECL void run_uncaptured(const std::function<void(CUstream)>& run, const char* name);
  /// Whether `measure` is on.
  bool is_profiling() const { return timed_ != nullptr; }

  /// Submits all pending commands to the GPU.
  LOCKSTEP_DECL void flush();
  /// Flushes and waits until the GPU has finished.
  LOCKSTEP_DECL void wait();
  /// Discards pending commands, after an error.
  LOCKSTEP_DECL void abandon() noexcept;

  /// While it lives, commands run at once and are not stored. For work that happens only once, such
  /// as a measurement.
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

  /// While it lives, checked mode does not wait: a stream cannot be waited for during capture, and
  /// times that include waits are meaningless.
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
  /// Number of stored segments, and how many of them have a graph.
  LOCKSTEP_DECL std::size_t segments() const;
  LOCKSTEP_DECL std::size_t graphs() const;

  /// A shorter segment is not worth a graph; when `max_segments` is reached, the least recently
  /// used segment is dropped. A step has one segment more than it has exchanges.
  static constexpr std::size_t min_commands = 3, max_segments = 256;
  /// Set once the log has explained, once per process, why a segment cannot be captured.
  static inline std::atomic<bool> logged{false};

 private:
  static std::uint64_t address(const void* p) { return reinterpret_cast<std::uint64_t>(p); }
  /// A copy or memset.
  LOCKSTEP_DECL static Command make_command(Command::Kind kind,
                                            std::initializer_list<std::uint64_t> words);

  /// Leaves the command to `flush` if it matches, else runs it.
  LOCKSTEP_DECL void enqueue(Command c);

  /// Whether the command continues a stored segment; if so, it is left to `flush`.
  LOCKSTEP_DECL bool matches_segment(const Command& c);
  /// Runs and waits. \throws DeviceError that names the command and the work.
  LOCKSTEP_COLD_DECL void run_checked(Command& c) const;
  /// Runs a command that does not match, or queues it for the profile.
  LOCKSTEP_DECL void run_now(Command c);
  /// Returns to the idle state.
  LOCKSTEP_DECL void reset() noexcept;

  /// Starts matching a stored segment that begins with `first`, if there is one.
  LOCKSTEP_DECL void begin_segment(const Command& first);

  /// Switches to another stored segment that begins with all matched commands and satisfies `fits`.
  /// Returns false if there is none.
  template <class Fits>
  bool switch_segment(const Fits& fits);
  /// A segment that continues with `next`, or that ends after `length` commands.
  LOCKSTEP_DECL bool switch_to_segment_with(const Command& next);
  LOCKSTEP_DECL bool switch_to_segment_of_length(std::size_t length);

  /// Runs the commands that were only compared so far; later commands run at once.
  LOCKSTEP_DECL void leave_segment();

  /// Stores the executed commands as a new segment.
  LOCKSTEP_COLD_DECL void store_segment();

  CUstream stream_;
  bool graphs_, eager_ = false;
  std::function<CUresult()> wait_;  // after each command, in checked mode
  Work work_;
  std::unique_ptr<TimedCommands> timed_;  // null unless profiling
  std::function<CUresult()> wait_for_timed_;
  std::vector<std::unique_ptr<Segment>> segments_;
  std::vector<Command> executed_;  // of the current segment
  Segment* matched_ = nullptr;
  std::uint64_t uses_ = 0;
  std::size_t position_ = 0;  // number of commands of matched_ compared, not run
};

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/commands.ipp"
#endif
