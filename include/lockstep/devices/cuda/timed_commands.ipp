#pragma once

#include "lockstep/devices/cuda/timed_commands.hpp"

#include <utility>

#include "lockstep/devices/cuda/cuda_graph.hpp"

namespace lockstep::detail::cuda {

void TimedCommands::add(Command command, const Work& work) {
  commands_.push_back({std::move(command), work});
}

void TimedCommands::run(CUstream stream, bool graphs, const std::function<CUresult()>& wait) {
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

void TimedCommands::run_apart(CUstream stream, const std::function<void(CUstream)>& run,
                              const char* name, const Work& work,
                              const std::function<CUresult()>& wait) {
  while (points_.size() < 2) points_.push_back(std::make_unique<Event>(CU_EVENT_DEFAULT));
  mark(stream, 0, CU_EVENT_RECORD_DEFAULT);
  run(stream);
  mark(stream, 1, CU_EVENT_RECORD_DEFAULT);
  check(wait(), "waiting for the GPU");
  times_.add(work, name, microseconds(0));
}

ReadyGraph TimedCommands::record(CUstream stream, const std::vector<Said>& commands) {
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

void TimedCommands::mark(CUstream stream, std::size_t i, unsigned flags) {
  check(driver().cuEventRecordWithFlags(points_[i]->get(), stream, flags), "recording an event");
}

double TimedCommands::microseconds(std::size_t i) const {
  float milliseconds = 0;
  check(driver().cuEventElapsedTime(&milliseconds, points_[i]->get(), points_[i + 1]->get()),
        "measuring time on the GPU");
  return 1e3 * static_cast<double>(milliseconds);
}

}  // namespace lockstep::detail::cuda
