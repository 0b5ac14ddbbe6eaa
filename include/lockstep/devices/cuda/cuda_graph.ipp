#pragma once

#include "lockstep/devices/cuda/cuda_graph.hpp"

namespace lockstep::detail::cuda {

// Swaps; the other object destroys the old graph.
Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(graph_, other.graph_);
  return *this;
}

void Graph::destroy() {
  if (graph_ != nullptr) driver().cuGraphDestroy(std::exchange(graph_, nullptr));
}

GraphExec::GraphExec(const Graph& graph) {
  check(driver().cuGraphInstantiate(&graph_, graph.get(), 0), "instantiating a graph");
}

GraphExec::~GraphExec() {
  if (graph_ != nullptr) driver().cuGraphExecDestroy(graph_);
}

GraphExec& GraphExec::operator=(GraphExec&& other) noexcept {
  std::swap(graph_, other.graph_);
  return *this;
}

void GraphExec::launch(CUstream stream) const {
  check(driver().cuGraphLaunch(graph_, stream), "launching a graph");
}

CUgraphNode last_node(CUstream stream) {
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
