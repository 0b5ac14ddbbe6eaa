/// \file
/// CUDA graphs: recorded, made ready, launched. Invariant: made and ended with the GPU's context
/// current.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

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
  /// `keeps_priorities`: each node has that of the stream on which it was recorded; else all have
  /// that of the stream on which the graph is launched.
  [[gnu::cold]] explicit ReadyGraph(const Graph& graph, bool keeps_priorities = false) {
    const unsigned flags = keeps_priorities ? CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY : 0;
    check(driver().cuGraphInstantiate(&graph_, graph.get(), flags), "making a graph");
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

/// Calls that were recorded once, to be launched alone or as a part of other graphs, which keep
/// their priority.
class GraphPart {
 public:
  template <class F>
  [[gnu::cold]] GraphPart(CUstream stream, const F& say)
      : graph_(stream, say), ready_(graph_, true) {}
  const Graph& graph() const { return graph_; }
  void launch(CUstream stream) const { ready_.launch(stream); }

 private:
  Graph graph_;
  ReadyGraph ready_;
};

/// Where a stream that is recorded stands: its graph, and the nodes that the next one comes after;
/// until the stream's next call.
struct Recording {
  CUgraph graph = nullptr;
  std::span<const CUgraphNode> nodes{};

  [[gnu::cold]] static Recording of(CUstream stream) {
    Recording now;
    CUstreamCaptureStatus status{};
    const CUgraphNode* nodes = nullptr;
    const CUgraphEdgeData* edges = nullptr;  // unused; not to ask for them may be an error
    std::size_t count = 0;
    check(driver().cuStreamGetCaptureInfo(stream, &status, nullptr, &now.graph, &nodes, &edges,
                                          &count),
          "recording a graph");
    now.nodes = {nodes, count};
    return now;
  }

  /// After all that was recorded, and after `beside`, if it is not null. If it `joins`, what is
  /// recorded afterwards comes after it. Returns its node.
  [[gnu::cold]] static CUgraphNode add_part(CUstream stream, const GraphPart& part,
                                            CUgraphNode beside, bool joins) {
    const Recording now = of(stream);
    std::vector<CUgraphNode> before(now.nodes.begin(), now.nodes.end());
    if (beside != nullptr) before.push_back(beside);
    CUgraphNode node = nullptr;
    check(driver().cuGraphAddChildGraphNode(&node, now.graph, before.data(), before.size(),
                                            part.graph().get()),
          "adding a part to a graph");
    if (joins)
      check(driver().cuStreamUpdateCaptureDependencies(stream, &node, nullptr, 1,
                                                       CU_STREAM_SET_CAPTURE_DEPENDENCIES),
            "adding a part to a graph");
    return node;
  }
};

}  // namespace lockstep::detail::cuda
