/// \file
/// CUDA graphs: capture, instantiation, launch. Invariant: created and destroyed with the GPU's
/// context current.
#pragma once

#include <cstddef>
#include <utility>

#include "lockstep/core/config.hpp"
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
  LOCKSTEP_DECL Graph& operator=(Graph&& other) noexcept;
  CUgraph get() const { return graph_; }

 private:
  LOCKSTEP_DECL void destroy();
  CUgraph graph_ = nullptr;
};

/// An instantiated graph, ready to launch; owns a CUgraphExec.
class GraphExec {
 public:
  GraphExec() = default;
  /// Instantiates the graph, which may be destroyed afterwards. \throws DeviceError.
  LOCKSTEP_COLD_DECL explicit GraphExec(const Graph& graph);
  LOCKSTEP_DECL ~GraphExec();
  GraphExec(GraphExec&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  LOCKSTEP_DECL GraphExec& operator=(GraphExec&& other) noexcept;
  explicit operator bool() const { return graph_ != nullptr; }
  CUgraphExec get() const { return graph_; }
  /// Enqueues the graph on the stream. \throws DeviceError.
  LOCKSTEP_DECL void launch(CUstream stream) const;

 private:
  CUgraphExec graph_ = nullptr;
};

/// The node of the call captured last on the stream. \throws DeviceError unless there is exactly
/// one.
LOCKSTEP_COLD_DECL CUgraphNode last_node(CUstream stream);

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/cuda_graph.ipp"
#endif
