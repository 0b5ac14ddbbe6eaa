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
#include <numeric>
#include <string>
#include <utility>
#include <vector>

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
  [[gnu::cold]] void add(Command command, const Work& work) {
    commands_.push_back({std::move(command), work});
  }
  /// Drops the queued commands.
  void discard() noexcept { commands_.clear(); }

  /// Runs the commands, waits with `wait()`, which returns the driver's result, and reports the
  /// times.
  [[gnu::cold]] void run(CUstream stream, bool graphs, const std::function<CUresult()>& wait) {
    // Taken out first, so that commands are not run again after an error.
    const std::vector<Pending> commands = std::exchange(commands_, {});
    if (commands.empty()) return;
    while (events_.size() < commands.size() + 2)
      events_.push_back(std::make_unique<Event>(CU_EVENT_DEFAULT));
    GraphExec graph = graphs ? capture(stream, commands) : GraphExec();
    if (graph) {
      graph.launch(stream);
    } else {
      record_event(stream, 0, CU_EVENT_RECORD_DEFAULT);
      record_event(stream, 1, CU_EVENT_RECORD_DEFAULT);
      for (std::size_t i = 0; i < commands.size(); ++i) {
        Command c = commands[i].command;
        c.execute(stream);
        record_event(stream, i + 2, CU_EVENT_RECORD_DEFAULT);
      }
    }
    check(wait(), "waiting for the GPU");
    // Two events in a row: the cost of an event, which each interval contains.
    times_.add_timer_overhead(microseconds(0));
    std::vector<double> of_calls;
    for (std::size_t i = 0; i < commands.size(); ++i) of_calls.push_back(microseconds(i + 1));
    times_.begin_calls(std::accumulate(of_calls.begin(), of_calls.end(), 0.0));
    for (std::size_t i = 0; i < commands.size(); ++i)
      times_.add(commands[i].work, commands[i].command.label(), of_calls[i]);
  }

  /// The same for `run(stream)`, which enqueues on the stream directly.
  [[gnu::cold]] void run_uncaptured(CUstream stream, const std::function<void(CUstream)>& run,
                                    const char* name, const Work& work,
                                    const std::function<CUresult()>& wait) {
    while (events_.size() < 2) events_.push_back(std::make_unique<Event>(CU_EVENT_DEFAULT));
    record_event(stream, 0, CU_EVENT_RECORD_DEFAULT);
    run(stream);
    record_event(stream, 1, CU_EVENT_RECORD_DEFAULT);
    check(wait(), "waiting for the GPU");
    const double all = microseconds(0);
    times_.begin_calls(all);
    times_.add(work, name, all);
  }

 private:
  /// A queued command and the work that it belongs to.
  struct Pending {
    Command command;
    Work work;
  };

  /// Returns an empty graph if the commands cannot be captured; none of them has run then.
  [[gnu::cold]] GraphExec capture(CUstream stream, const std::vector<Pending>& commands) {
    const CaptureLock lock;
    try {
      const Graph graph(stream, [&] {
        record_event(stream, 0, CU_EVENT_RECORD_EXTERNAL);
        record_event(stream, 1, CU_EVENT_RECORD_EXTERNAL);
        for (std::size_t i = 0; i < commands.size(); ++i) {
          Command c = commands[i].command;
          c.execute(stream);
          record_event(stream, i + 2, CU_EVENT_RECORD_EXTERNAL);
        }
      });
      return GraphExec(graph);
    } catch (const DeviceError&) {
      check_stream(stream);
      return {};
    }
  }
  /// Records event i. Inside a capture, `flags` makes it an external event, which can be timed.
  void record_event(CUstream stream, std::size_t i, unsigned flags) {
    check(driver().cuEventRecordWithFlags(events_[i]->get(), stream, flags), "recording an event");
  }
  /// From event i to the next.
  double microseconds(std::size_t i) const {
    float milliseconds = 0;
    check(driver().cuEventElapsedTime(&milliseconds, events_[i]->get(), events_[i + 1]->get()),
          "measuring time on the GPU");
    return 1e3 * static_cast<double>(milliseconds);
  }

  WorkTimes& times_;
  std::vector<Pending> commands_;
  std::vector<std::unique_ptr<Event>> events_;
};

}  // namespace lockstep::detail::cuda
