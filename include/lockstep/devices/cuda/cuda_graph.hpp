/// \file
/// CUDA graphs: recorded, made ready, launched. Invariant: made and ended with the GPU's context
/// current.
#pragma once

#include <cstddef>
#include <utility>

#include "lockstep/core/config.hpp"
#include "lockstep/devices/cuda/libraries/driver.hpp"

namespace lockstep::detail::cuda {

/// Calls as a graph.
class Graph {
 public:
  Graph() = default;
  /// What `enqueue()` asks of `stream`: recorded, not run. \throws what `enqueue` throws, and DeviceError.
  template <class F>
  Graph(CUstream stream, const F& enqueue) {
    // Other threads may record, or take memory, at the same time.
    check(driver().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
          "capturing a graph");
    try {
      enqueue();
    } catch (...) {
      driver().cuStreamEndCapture(stream, &graph_);  // ends it; its own error says nothing new
      destroy();
      throw;
    }
    check(driver().cuStreamEndCapture(stream, &graph_), "capturing a graph");
  }
  ~Graph() { destroy(); }
  Graph(Graph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  LOCKSTEP_DECL Graph& operator=(Graph&& other) noexcept;
  CUgraph get() const { return graph_; }

 private:
  LOCKSTEP_DECL void destroy();
  CUgraph graph_ = nullptr;
};

/// A graph that can be launched.
class GraphExec {
 public:
  GraphExec() = default;
  LOCKSTEP_COLD_DECL explicit GraphExec(const Graph& graph);
  LOCKSTEP_DECL ~GraphExec();
  GraphExec(GraphExec&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  LOCKSTEP_DECL GraphExec& operator=(GraphExec&& other) noexcept;
  explicit operator bool() const { return graph_ != nullptr; }
  CUgraphExec get() const { return graph_; }
  LOCKSTEP_DECL void launch(CUstream stream) const;

 private:
  CUgraphExec graph_ = nullptr;
};

/// The node of the last call that was recorded from the stream. \throws DeviceError if it has none of
/// its own.
LOCKSTEP_COLD_DECL CUgraphNode last_node(CUstream stream);

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/cuda_graph.ipp"
#endif
