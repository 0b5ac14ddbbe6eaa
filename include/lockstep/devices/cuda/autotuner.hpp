/// \file
/// Which of several count to do the same work is the fastest on a GPU. Invariants: the GPU's time is
/// compared, not the host's; every way meets the same clocks and caches; a way that fails is left
/// out.
///
///     try each way       loads its kernels; whatever fails is out
///     record each way    up to 20 runs as one graph, so that the launch costs next to nothing
///     rounds             a graph that is not measured, event, graph 1, event, graph 2, ... event;
///                        the host waits at the end
///       warm-up          5 ms: an idle GPU lowers its clocks
///       5 that count     the fastest_ms time of each; slower than three times the best: out
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/devices/cuda/context.hpp"
#include "lockstep/devices/cuda/cuda_graph.hpp"
#include "lockstep/devices/cuda/stream.hpp"

namespace lockstep::detail::cuda {

/// A comparison of count.
class Autotuner {
 public:
  /// `run(i)` enqueues the work of way i. It is called again while a graph is recorded, so it only
  /// enqueues, except on its first call.
  using Run = std::function<void(std::size_t)>;

  /// The number of the fastest of `count`; the first of equals. A single one is run once, to see
  /// that it works. \throws OutOfMemory; DeviceError with the first reason, if all fail.
  LOCKSTEP_COLD_DECL static std::size_t fastest(CudaContext& context, std::size_t count,
                                                const Run& run);

  static constexpr int max_copies = 20, rounds = 5;
  /// In milliseconds: a graph has fewer runs if it would take longer.
  static constexpr float longest_graph = 2, warm_up = 5;
  /// A way is dropped if it takes more than this multiple of the best way's time.
  static constexpr float cutoff = 3;
  /// Whether the log has why a way cannot be recorded: once in a process.
  static inline std::atomic<bool> logged{false};

 private:
  struct Candidate {
    std::size_t index;
    int copies = max_copies;
    GraphExec graph{};                                          // none: the way cannot be recorded
    float fastest_ms = std::numeric_limits<float>::infinity();  // milliseconds of one run
    bool failed = false;
  };

  Autotuner(CudaContext& context, const Run& run) : context_(context), run_(run) {}

  LOCKSTEP_DECL void add(std::size_t way);
  LOCKSTEP_DECL void measure();

  LOCKSTEP_DECL void capture(Candidate& r);
  LOCKSTEP_DECL void run_copies(const Candidate& r);

  /// Runs all count in turn, and returns the time of all.
  LOCKSTEP_DECL float round(bool counts);

  /// Keeps the GPU busy while the host launches the first way. On an idle GPU the first event would
  /// be stamped at once, and that way alone would be charged for the host's launch. The last graph
  /// is used, so that each way follows the same one in every round. Each graph takes the GPU longer
  /// than the host needs for an event and a launch, so the queue stays filled.
  LOCKSTEP_DECL void fill_queue();
  void launch(const Candidate& r) { r.graph.launch(context_.stream()); }

  template <class F>
  void attempt(Candidate& r, const F& f);
  LOCKSTEP_DECL void drop_failed();

  LOCKSTEP_DECL void record_event(std::size_t i);
  /// Waits for the last event, if need be.
  LOCKSTEP_DECL float milliseconds(std::size_t from, std::size_t to);

  CudaContext& context_;
  const Run& run_;
  std::vector<Candidate> candidates_;
  std::deque<Event> events_;
  std::string why_;
};

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/autotuner.ipp"
#endif
