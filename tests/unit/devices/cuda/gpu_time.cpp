/// \file
/// benchmarks/gpu_time.hpp with separate clocks for GPU and host: each call costs the host some
/// time, and work begins when it has been queued and all earlier work has ended.
#include "../../../../benchmarks/gpu_time.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "lockstep/cuda.hpp"

namespace {

using lockstep::detail::cuda::Driver, lockstep::detail::cuda::EntryPoints;

constexpr double call_us = 5;

struct Clocks {
  double host = 0, gpu = 0;
  bool is_recording = false;
  std::vector<double> recorded{};
  std::map<CUevent, double> events{};

  void work(double us) { gpu = std::max(host, gpu) + us; }
} clocks;

/// A copy of n bytes takes n microseconds.
void copy(std::size_t us) {
  lockstep::detail::cuda::check(
      lockstep::detail::cuda::driver().cuMemcpyDtoDAsync(0, 0, us, nullptr), "copying");
}

Driver two_clocks() {
  clocks = {};
  Driver d;
  d.cuMemcpyDtoDAsync = [](CUdeviceptr, CUdeviceptr, std::size_t n, CUstream) {
    if (clocks.is_recording) return clocks.recorded.push_back(static_cast<double>(n)), CUDA_SUCCESS;
    clocks.host += call_us;
    return clocks.work(static_cast<double>(n)), CUDA_SUCCESS;
  };
  d.cuEventCreate = [](CUevent* e, unsigned) {
    *e = reinterpret_cast<CUevent>(clocks.events.size() + 1);
    return clocks.events[*e] = 0, CUDA_SUCCESS;
  };
  d.cuEventRecord = [](CUevent e, CUstream) {
    clocks.host += call_us;
    return clocks.events[e] = std::max(clocks.host, clocks.gpu), CUDA_SUCCESS;
  };
  d.cuEventSynchronize = [](CUevent e) {
    return clocks.host = std::max(clocks.host, clocks.events[e]), CUDA_SUCCESS;
  };
  d.cuEventElapsedTime = [](float* ms, CUevent from, CUevent to) {
    *ms = static_cast<float>((clocks.events[to] - clocks.events[from]) / 1000);
    return CUDA_SUCCESS;
  };
  d.cuStreamBeginCapture = [](CUstream, CUstreamCaptureMode) {
    return clocks.is_recording = true, CUDA_SUCCESS;
  };
  d.cuStreamEndCapture = [](CUstream, CUgraph* g) {
    *g = reinterpret_cast<CUgraph>(&clocks);
    return clocks.is_recording = false, CUDA_SUCCESS;
  };
  d.cuGraphInstantiate = [](CUgraphExec* e, CUgraph, unsigned long long) {
    return *e = reinterpret_cast<CUgraphExec>(&clocks), CUDA_SUCCESS;
  };
  d.cuGraphLaunch = [](CUgraphExec, CUstream) {
    clocks.host += call_us;
    for (const double us : clocks.recorded) clocks.work(us);
    return CUDA_SUCCESS;
  };
  d.cuGraphDestroy = [](CUgraph) { return CUDA_SUCCESS; };
  d.cuGraphExecDestroy = [](CUgraphExec) { return CUDA_SUCCESS; };
  return d;
}

}  // namespace

TEST_CASE("GPU time excludes the host's launches") {
  const Driver table = two_clocks();
  const EntryPoints<Driver>::Override instead(table);
  const gpu_time::Timer timer(nullptr, 3);
  CHECK(timer.us([] { copy(50); }) == Catch::Approx(50));
}

TEST_CASE("work shorter than its launch is timed as one of many in a graph") {
  const Driver table = two_clocks();
  const EntryPoints<Driver>::Override instead(table);
  const gpu_time::Timer timer(nullptr, 3);
  CHECK(timer.us_in_graph(20, [] { copy(2); }) == Catch::Approx(2));
}
