/// \file
/// CUDA graphs: capture, instantiation, launch. Invariant: created and destroyed with the GPU's
/// context current.
#pragma once

#include <cstddef>
#include <utility>

#include "lockstep/devices/cuda/libraries/driver.hpp"

namespace lockstep::detail::cuda {

/// A captured graph; owns a CUgraph.
class Graph {
 public:
  Graph() = default;
  /// Captures what `enqueue()` enqueues on `stream`; nothing runs. \throws DeviceError, and
  /// whatever `enqueue` throws.
  template <class F>
  Graph(CUstream stream, const F& enqueue) {
    // THREAD_LOCAL, because other threads may capture or allocate at the same time.
    check(driver().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
          "capturing a graph");
    try {
      enqueue();
    } catch (...) {
      driver().cuStreamEndCapture(stream, &graph_);  // ends the capture; its error adds nothing
      destroy();
      throw;
    }
    check(driver().cuStreamEndCapture(stream, &graph_), "capturing a graph");
  }
  ~Graph() { destroy(); }
  Graph(Graph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  /// Swaps; the other object destroys the old graph.
  Graph& operator=(Graph&& other) noexcept {
    std::swap(graph_, other.graph_);
    return *this;
  }
  CUgraph get() const { return graph_; }

 private:
  void destroy() {
    if (graph_ != nullptr) driver().cuGraphDestroy(std::exchange(graph_, nullptr));
  }
  CUgraph graph_ = nullptr;
};

/// An instantiated graph, ready to launch; owns a CUgraphExec.
class GraphExec {
 public:
  GraphExec() = default;
  /// Instantiates the graph, which may be destroyed afterwards. \throws DeviceError.
  [[gnu::cold]] explicit GraphExec(const Graph& graph) {
    check(driver().cuGraphInstantiate(&graph_, graph.get(), 0), "instantiating a graph");
  }
  ~GraphExec() {
    if (graph_ != nullptr) driver().cuGraphExecDestroy(graph_);
  }
  GraphExec(GraphExec&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  GraphExec& operator=(GraphExec&& other) noexcept {
    std::swap(graph_, other.graph_);
    return *this;
  }
  explicit operator bool() const { return graph_ != nullptr; }
  CUgraphExec get() const { return graph_; }
  /// Enqueues the graph on the stream. \throws DeviceError.
  void launch(CUstream stream) const {
    check(driver().cuGraphLaunch(graph_, stream), "launching a graph");
  }

 private:
  CUgraphExec graph_ = nullptr;
};

/// The node of the call captured last on the stream. \throws DeviceError unless there is exactly
/// one.
[[gnu::cold]] inline CUgraphNode last_node(CUstream stream) {
  CUstreamCaptureStatus status{};
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;  // unused, but omitting it can be an error
  std::size_t count = 0;
  check(driver().cuStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, &edges, &count),
        "capturing a graph");
  // The stream's dependencies in the capture: after one call there is exactly one node.
  if (count != 1) throw DeviceError("cuda: a captured kernel has no separate graph node");
  return nodes[0];
}

}  // namespace lockstep::detail::cuda
