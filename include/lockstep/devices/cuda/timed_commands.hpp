/// \file
/// Calls that are made with events between them, for a profile. Invariants: they take effect in
/// their order, those of one `run` as one graph where the driver takes them for one, so that the
/// GPU does not wait for the host between two; an interval is a call's own time and what the GPU
/// needs to start the next.
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

class TimedCommands {
 public:
  explicit TimedCommands(WorkTimes& times) : times_(times) {}

  LOCKSTEP_COLD_DECL void add(Command command, const Work& work);
  void discard() noexcept { commands_.clear(); }

  /// Makes the calls, waits for them by `wait()`, which returns what the driver said, and reports
  /// their times.
  LOCKSTEP_COLD_DECL void run(CUstream stream, bool graphs, const std::function<CUresult()>& wait);

  /// The same for `run(stream)`, which is no command.
  LOCKSTEP_COLD_DECL void run_uncaptured(CUstream stream, const std::function<void(CUstream)>& run,
                                         const char* name, const Work& work,
                                         const std::function<CUresult()>& wait);

 private:
  struct Pending {
    Command command;
    Work work;
  };

  /// Empty if the driver takes the calls for no graph. Nothing of them has run then.
  LOCKSTEP_COLD_DECL GraphExec capture(CUstream stream, const std::vector<Pending>& commands);
  LOCKSTEP_DECL void record_event(CUstream stream, std::size_t i, unsigned flags);
  /// From point i to the next.
  LOCKSTEP_DECL double microseconds(std::size_t i) const;

  WorkTimes& times_;
  std::vector<Pending> commands_;
  std::vector<std::unique_ptr<Event>> events_;
};

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/timed_commands.ipp"
#endif
