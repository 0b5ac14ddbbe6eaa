/// \file
/// GPU times, measured with events. Invariant: when the first event is queued, the GPU is still
/// busy with an uncounted run of the same work. On an idle GPU that event would complete before the
/// host has launched anything, and the launch would be measured too. So a run must take longer than
/// the host needs to queue the next one, some ten microseconds; shorter work goes into a graph.
#pragma once

#include <lockstep/cuda.hpp>
#include <lockstep/devices/cuda/cuda_graph.hpp>
#include <lockstep/devices/cuda/stream.hpp>

#include "measure.hpp"

namespace gpu_time {

namespace cuda = lockstep::detail::cuda;

/// For one stream; lives until the process ends.
class Timer {
 public:
  Timer(CUstream stream, int repeats) : stream_(stream), repeats_(repeats) {
    for (CUevent* const event : {&begin_, &end_})
      cuda::check(cuda::driver().cuEventCreate(event, CU_EVENT_DEFAULT), "creating an event");
  }

  /// Median microseconds of the work that `enqueue()` queues.
  template <class F>
  double us(const F& enqueue) const {
    measure::Samples samples;
    for (int i = -3; i < repeats_; ++i) {
      enqueue();
      cuda::check(cuda::driver().cuEventRecord(begin_, stream_), "recording an event");
      enqueue();
      cuda::check(cuda::driver().cuEventRecord(end_, stream_), "recording an event");
      cuda::check(cuda::driver().cuEventSynchronize(end_), "waiting for an event");
      float ms = 0;
      cuda::check(cuda::driver().cuEventElapsedTime(&ms, begin_, end_), "asking for a time");
      if (i >= 0) samples.add(1000.0 * static_cast<double>(ms));
    }
    return samples.median();
  }

  /// The same for one of `count` copies in a graph, one after the other.
  template <class F>
  double us_in_graph(int count, const F& enqueue) const {
    const cuda::Graph graph(stream_, [&] {
      for (int i = 0; i < count; ++i) enqueue();
    });
    const cuda::GraphExec ready(graph);
    return us([&] { ready.launch(stream_); }) / count;
  }

 private:
  CUstream stream_;
  int repeats_;
  CUevent begin_ = nullptr, end_ = nullptr;
};

}  // namespace gpu_time
