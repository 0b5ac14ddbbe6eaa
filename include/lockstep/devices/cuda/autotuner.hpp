/// \file
/// Picks the fastest of several implementations of the same work on a GPU. Invariants: GPU time is
/// compared, not host time; all candidates see the same clocks and caches; a candidate that fails
/// is dropped.
///
///     try            each candidate runs once and loads its kernels; one that fails is dropped
///     capture        up to 20 runs of each as one graph, so launch overhead is negligible
///     rounds         an unmeasured graph, event, graph 1, event, graph 2, ..., event; then the
///                    host waits
///       warm-up      5 ms, because an idle GPU lowers its clocks
///       5 measured   the minimum of each counts; slower than three times the best: dropped
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

/// One comparison. Used by one thread, with the context's scope held.
class Autotuner {
 public:
  /// `run(i)` enqueues candidate i. After its first call it must only enqueue, because it is called
  /// again during capture.
  using Run = std::function<void(std::size_t)>;

  /// Returns the index of the fastest candidate; ties go to the lower index. A single candidate
  /// runs once, to check that it works. \throws OutOfMemory; DeviceError with the first reason if
  /// all candidates fail.
  LOCKSTEP_COLD_DECL static std::size_t fastest(CudaContext& context, std::size_t count,
                                                const Run& run);

  /// Runs per graph at most, and measured rounds.
  static constexpr int max_copies = 20, rounds = 5;
  /// Milliseconds. A graph gets fewer copies if it would run longer than `longest_graph`.
  static constexpr float longest_graph = 2, warm_up = 5;
  /// A candidate slower than this multiple of the best one is dropped.
  static constexpr float cutoff = 3;
  /// Set once the log has explained, once per process, that a candidate cannot be captured.
  static inline std::atomic<bool> logged{false};

 private:
  /// One implementation and its best time.
  struct Candidate {
    std::size_t index;
    int copies = max_copies;
    GraphExec graph{};                                          // empty: cannot be captured
    float fastest_ms = std::numeric_limits<float>::infinity();  // of one run
    bool failed = false;
  };

  Autotuner(CudaContext& context, const Run& run) : context_(context), run_(run) {}

  /// Runs the candidate once; keeps it if it works.
  LOCKSTEP_DECL void add(std::size_t index);
  /// Captures the candidates, then runs the warm-up and the measured rounds.
  LOCKSTEP_DECL void measure();

  /// Times one run to choose the number of copies, then captures them.
  LOCKSTEP_DECL void capture(Candidate& r);
  /// Enqueues the candidate's runs, for the capture or instead of a graph.
  LOCKSTEP_DECL void run_copies(const Candidate& r);

  /// Runs every candidate once, in order, and returns the total time in milliseconds.
  LOCKSTEP_DECL float round(bool counts);

  /// Keeps the GPU busy while the host launches the first candidate. On an idle GPU the first event
  /// would be stamped at once, and the first candidate alone would be charged for the host's
  /// launch. The last graph is used, so each candidate follows the same one in every round. A graph
  /// runs longer than the host needs to enqueue an event and a launch, so the queue stays filled.
  LOCKSTEP_DECL void fill_queue();
  void launch(const Candidate& r) { r.graph.launch(context_.stream()); }

  /// Marks the candidate as failed if f throws a DeviceError; an OutOfMemory passes through.
  template <class F>
  void attempt(Candidate& r, const F& f);
  /// Removes failed candidates, so that later rounds skip them.
  LOCKSTEP_DECL void drop_failed();

  /// Records event i on the stream; creates it on first use.
  LOCKSTEP_DECL void record_event(std::size_t i);
  /// From one event to another; waits for the later one.
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
