#pragma once

#include "lockstep/devices/cuda/timed_commands.hpp"

#include <numeric>
#include <utility>
#include <vector>

#include "lockstep/devices/cuda/cuda_graph.hpp"

namespace lockstep::detail::cuda {

void TimedCommands::add(Command command, const Work& work) {
  commands_.push_back({std::move(command), work});
}

void TimedCommands::run(CUstream stream, bool graphs, const std::function<CUresult()>& wait) {
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

void TimedCommands::run_uncaptured(CUstream stream, const std::function<void(CUstream)>& run,
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

GraphExec TimedCommands::capture(CUstream stream, const std::vector<Pending>& commands) {
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

void TimedCommands::record_event(CUstream stream, std::size_t i, unsigned flags) {
  check(driver().cuEventRecordWithFlags(events_[i]->get(), stream, flags), "recording an event");
}

double TimedCommands::microseconds(std::size_t i) const {
  float milliseconds = 0;
  check(driver().cuEventElapsedTime(&milliseconds, events_[i]->get(), events_[i + 1]->get()),
        "measuring time on the GPU");
  return 1e3 * static_cast<double>(milliseconds);
}

}  // namespace lockstep::detail::cuda
