/// \file
/// CUDA graphs: recorded, made ready, launched. Invariant: made and ended with the GPU's context
/// current.
#pragma once

#include <cstddef>
#include <utility>

#include "lockstep/devices/cuda/libraries/driver.hpp"

namespace lockstep::detail::cuda {

/// Calls as a graph.
class Graph {
 public:
  Graph() = default;
  /// What `say()` asks of `stream`: recorded, not run. \throws what `say` throws, and DeviceError.
  template <class F>
  [[gnu::cold]] Graph(CUstream stream, const F& say) {
    // Other threads may record, or take memory, at the same time.
    check(driver().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
          "recording a graph");
    try {
      say();
    } catch (...) {
      driver().cuStreamEndCapture(stream, &graph_);  // ends it; its own error says nothing new
      end();
      throw;
    }
    check(driver().cuStreamEndCapture(stream, &graph_), "recording a graph");
  }
  ~Graph() { end(); }
  Graph(Graph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(graph_, other.graph_);
    return *this;
  }
  CUgraph get() const { return graph_; }

 private:
  void end() {
    if (graph_ != nullptr) driver().cuGraphDestroy(std::exchange(graph_, nullptr));
  }
  CUgraph graph_ = nullptr;
};

/// A graph that can be launched.
class ReadyGraph {
 public:
  ReadyGraph() = default;
  [[gnu::cold]] explicit ReadyGraph(const Graph& graph) {
    check(driver().cuGraphInstantiate(&graph_, graph.get(), 0), "making a graph");
  }
  ~ReadyGraph() {
    if (graph_ != nullptr) driver().cuGraphExecDestroy(graph_);
  }
  ReadyGraph(ReadyGraph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  ReadyGraph& operator=(ReadyGraph&& other) noexcept {
    std::swap(graph_, other.graph_);
    return *this;
  }
  explicit operator bool() const { return graph_ != nullptr; }
  CUgraphExec get() const { return graph_; }
  void launch(CUstream stream) const {
    check(driver().cuGraphLaunch(graph_, stream), "starting a graph");
  }

 private:
  CUgraphExec graph_ = nullptr;
};

/// The node of the last call that was recorded from the stream. \throws DeviceError if it has none of
/// its own.
[[gnu::cold]] inline CUgraphNode last_node(CUstream stream) {
  CUstreamCaptureStatus status{};
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;  // unused; not to ask for them may be an error
  std::size_t count = 0;
  check(driver().cuStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, &edges, &count),
        "recording a graph");
  if (count != 1) throw DeviceError("cuda: a recorded kernel has no node of its own");
  return nodes[0];
}

}  // namespace lockstep::detail::cuda
