/// \file
/// Calls that are made with events between them, for a profile. Invariants: they take effect in
/// their order, those of one `run` as one graph where the driver takes them for one, so that the
/// GPU does not wait for the host between two; an interval is a call's own time and what the GPU
/// needs to start the next.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/work_times.hpp"
#include "lockstep/devices/cuda/command.hpp"
#include "lockstep/devices/cuda/graph.hpp"
#include "lockstep/devices/cuda/libraries/driver.hpp"
#include "lockstep/devices/cuda/stream.hpp"

namespace lockstep::detail::cuda {

class TimedCommands {
 public:
  explicit TimedCommands(WorkTimes& times) : times_(times) {}

  [[gnu::cold]] void add(Command command, const Work& work) {
    commands_.push_back({std::move(command), work});
  }
  void forget() noexcept { commands_.clear(); }

  /// Makes the calls, waits for them by `wait()`, which returns what the driver said, and reports
  /// their times.
  template <class Wait>
  [[gnu::cold]] void run(CUstream stream, bool graphs, const Wait& wait) {
    const std::vector<Said> commands = std::exchange(commands_, {});
    if (commands.empty()) return;
    while (points_.size() < commands.size() + 2)
      points_.push_back(std::make_unique<Event>(CU_EVENT_DEFAULT));
    ReadyGraph graph = graphs ? record(stream, commands) : ReadyGraph();
    if (graph) {
      graph.launch(stream);
    } else {
      mark(stream, 0, CU_EVENT_RECORD_DEFAULT);
      mark(stream, 1, CU_EVENT_RECORD_DEFAULT);
      for (std::size_t i = 0; i < commands.size(); ++i) {
        Command c = commands[i].command;
        c.execute(stream);
        mark(stream, i + 2, CU_EVENT_RECORD_DEFAULT);
      }
    }
    check(wait(), "waiting for the GPU");
    times_.add_nothing(microseconds(0));
    for (std::size_t i = 0; i < commands.size(); ++i)
      times_.add(commands[i].work, commands[i].command.label(), microseconds(i + 1));
  }

  /// The same for `run(stream)`, which is no command.
  template <class F, class Wait>
  [[gnu::cold]] void run_apart(CUstream stream, const F& run, const char* name, const Work& work,
                               const Wait& wait) {
    while (points_.size() < 2) points_.push_back(std::make_unique<Event>(CU_EVENT_DEFAULT));
    mark(stream, 0, CU_EVENT_RECORD_DEFAULT);
    run(stream);
    mark(stream, 1, CU_EVENT_RECORD_DEFAULT);
    check(wait(), "waiting for the GPU");
    times_.add(work, name, microseconds(0));
  }

 private:
  struct Said {
    Command command;
    Work work;
  };

  /// Empty if the driver takes the calls for no graph. Nothing of them has run then.
  [[gnu::cold]] ReadyGraph record(CUstream stream, const std::vector<Said>& commands) {
    const Undisturbed undisturbed;
    try {
      const Graph graph(stream, [&] {
        mark(stream, 0, CU_EVENT_RECORD_EXTERNAL);
        mark(stream, 1, CU_EVENT_RECORD_EXTERNAL);
        for (std::size_t i = 0; i < commands.size(); ++i) {
          Command c = commands[i].command;
          c.execute(stream);
          mark(stream, i + 2, CU_EVENT_RECORD_EXTERNAL);
        }
      });
      return ReadyGraph(graph);
    } catch (const DeviceError&) {
      refuse_earlier(stream);
      return {};
    }
  }
  void mark(CUstream stream, std::size_t i, unsigned flags) {
    check(driver().cuEventRecordWithFlags(points_[i]->get(), stream, flags), "recording an event");
  }
  /// From point i to the next.
  double microseconds(std::size_t i) const {
    float milliseconds = 0;
    check(driver().cuEventElapsedTime(&milliseconds, points_[i]->get(), points_[i + 1]->get()),
          "measuring time on the GPU");
    return 1e3 * static_cast<double>(milliseconds);
  }

  WorkTimes& times_;
  std::vector<Said> commands_;
  std::vector<std::unique_ptr<Event>> points_;
};

}  // namespace lockstep::detail::cuda
