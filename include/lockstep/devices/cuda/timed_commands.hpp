/// \file
/// Commands with an event after each, for a profile. Invariants: commands take effect in order;
/// those of one `run` are one graph where capture succeeds, so the GPU does not wait for the host
/// between two commands. An interval is a command's own time plus the time the GPU needs to start
/// the next.
///
///     event 0   event 1   command 0   event 2   command 1   event 3   ...
///         |<------->|<----------------->|<------------------->|
///          overhead    time of command 0    time of command 1
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/work_times.hpp"
#include "lockstep/devices/cuda/command.hpp"
#include "lockstep/devices/cuda/cuda_graph.hpp"
#include "lockstep/devices/cuda/libraries/driver.hpp"
#include "lockstep/devices/cuda/stream.hpp"

namespace lockstep::detail::cuda {

/// Collects commands, runs them between events, and reports their times to a WorkTimes.
class TimedCommands {
 public:
  explicit TimedCommands(WorkTimes& times) : times_(times) {}

  /// Queues a command for the next `run`.
  LOCKSTEP_COLD_DECL void add(Command command, const Work& work);
  /// Drops the queued commands.
  void discard() noexcept { commands_.clear(); }

  /// Runs the commands, waits with `wait()`, which returns the driver's result, and reports the
  /// times.
  LOCKSTEP_COLD_DECL void run(CUstream stream, bool graphs, const std::function<CUresult()>& wait);

  /// The same for `run(stream)`, which enqueues on the stream directly.
  LOCKSTEP_COLD_DECL void run_uncaptured(CUstream stream, const std::function<void(CUstream)>& run,
                                         const char* name, const Work& work,
                                         const std::function<CUresult()>& wait);

 private:
  /// A queued command and the work that it belongs to.
  struct Pending {
    Command command;
    Work work;
  };

  /// Returns an empty graph if the commands cannot be captured; none of them has run then.
  LOCKSTEP_COLD_DECL GraphExec capture(CUstream stream, const std::vector<Pending>& commands);
  /// Records event i. Inside a capture, `flags` makes it an external event, which can be timed.
  LOCKSTEP_DECL void record_event(CUstream stream, std::size_t i, unsigned flags);
  /// From event i to the next.
  LOCKSTEP_DECL double microseconds(std::size_t i) const;

  WorkTimes& times_;
  std::vector<Pending> commands_;
  std::vector<std::unique_ptr<Event>> events_;
};

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/timed_commands.ipp"
#endif
