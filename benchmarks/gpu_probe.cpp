// The cost of a GPU and its driver for a small step, as a yardstick for lockstep's kernels:
//
//   launch     one node of a graph of 200, by blocks and threads, plain and with programmatic
//              dependent launch
//   host       a graph of 1, 10, 100 and 563 nodes: the call, the call and the wait, new arguments
//              for one node
//   bandwidth  a copy with 2, 4, 8 and 16 bytes per thread, as one of 20 in a graph, from the L2
//              cache and from memory; bytes read plus bytes written
//   barrier    one barrier of a cluster of eight blocks and of a whole grid (one block per SM)
//
// GPU times are medians between two events with work before the first (gpu_time.hpp); host times
// are medians of the host's clock. A figure that this driver or GPU cannot provide is null in the
// JSON, with the reason.
#include <dlfcn.h>

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include <lockstep/cuda.hpp>
#include <lockstep/devices/cuda/cuda_graph.hpp>
#include <lockstep/devices/cuda/stream.hpp>

#include "gpu_figures.hpp"
#include "gpu_time.hpp"
#include "measure.hpp"

namespace {

namespace cuda = lockstep::detail::cuda;
using cuda::Define, cuda::driver;
using gpu_figures::Figure;

// The host stand-in compiles these kernels too.
constexpr cuda::Source plain_text{"the probe", R"cuda(
#if BYTES == 2
typedef unsigned short Word;
#elif BYTES == 4
typedef u32 Word;
#elif BYTES == 8
struct __align__(8) Word { u32 a, b; };
#else
struct __align__(16) Word { u32 a, b, c, d; };
#endif
KERNEL(empty)(float*) {}
KERNEL(touch)(float* p) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  p[i] = p[i * 7 & 32767] + 1.0f;
}
KERNEL(copy)(const Word* x, Word* y, i64 n) {
  for (i64 i = INDEX; i < n; i += STRIDE) y[i] = x[i];
}
KERNEL(copy_unrolled)(const Word* x, Word* y, i64 n) {
#pragma unroll 4
  for (i64 i = INDEX; i < n; i += STRIDE) y[i] = x[i];
}
)cuda"};

// For GPUs of compute capability 9.0 and later.
constexpr cuda::Source hopper_text{"the probe's barriers", R"cuda(
KERNEL(empty)(float*) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;");
}
KERNEL(touch)(float* p) {
  asm volatile("griddepcontrol.launch_dependents;");
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  asm volatile("griddepcontrol.wait;" ::: "memory");
  p[i] = p[i * 7 & 32767] + 1.0f;
}
KERNEL(grid_barriers)(u32* state, int rounds) {
  for (u32 round = 0; round < (u32)rounds; ++round) {
    __syncthreads();
    if (threadIdx.x == 0) {
      u32 before, now;
      asm volatile("atom.add.acq_rel.gpu.u32 %0, [%1], 1;"
                   : "=r"(before) : "l"(state) : "memory");
      if (before == gridDim.x * (round + 1) - 1)
        asm volatile("st.release.gpu.u32 [%0], %1;" ::"l"(state + 1), "r"(round + 1) : "memory");
      else
        do {
          asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(now) : "l"(state + 1) : "memory");
        } while (now <= round);
    }
    __syncthreads();
  }
}
KERNEL(cluster_barriers)(u32*, int rounds) {
  for (int i = 0; i < rounds; ++i)
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
)cuda"};

/// How much is measured.
struct Sizes {
  int nodes = 200, copies = 20, repeats = 15, host_repeats = 200, rounds = 1000;
  std::vector<unsigned> blocks{1, 10, 132, 264, 1056};
  std::vector<std::size_t> kibibytes{4 << 10, 64 << 10, 1 << 20};
  double warm_seconds = 0.2;
};
constexpr std::size_t touched_bytes = std::size_t{2} << 20;

class Probe {
 public:
  Probe(const Sizes& sizes, const lockstep::Gpu& gpu, gpu_figures::Report& report)
      : sizes_(sizes), gpu_(gpu), report_(report) {
    CUdevice device = 0;
    cuda::check(driver().cuDeviceGet(&device, 0), "opening a GPU");
    cuda::check(driver().cuDevicePrimaryCtxRetain(&context_, device), "opening a GPU");
    cuda::check(driver().cuCtxPushCurrent(context_), "entering a GPU's context");
    cuda::check(driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "creating a stream");
    timer_.emplace(stream_, sizes_.repeats);
    const cuda::Library library("libcuda.so.1", "install NVIDIA's driver");
    library.find_newer(launch_ex_, "cuLaunchKernelEx");
    if (launch_ex_ == nullptr)
      why_not_ = "this driver has no cuLaunchKernelEx";
    else if (gpu_.major < 9)
      why_not_ = "the GPU's compute capability is below 9.0";
  }

  void run() {
    touched_ = allocate(touched_bytes);
    warm_up();
    report_.group("launch", [&] { launches(); });
    report_.group("host", [&] { host(); });
    report_.group("bandwidth", [&] { bandwidth(); });
    // Last, because nothing can be measured after a barrier that does not end.
    report_.group("barrier", [&] { barriers(); });
  }

 private:
  // Never freed: the process ends soon, and memory and modules with it.
  CUdeviceptr allocate(std::size_t bytes) {
    CUdeviceptr p = 0;
    cuda::check(driver().cuMemAlloc(&p, bytes), "allocating memory");
    cuda::check(driver().cuMemsetD8Async(p, 7, bytes, stream_), "clearing memory");
    return p;
  }
  CUfunction find(const cuda::Source& source, const char* entry, int bytes = 4) {
    return programs_.find(source, entry, std::array{Define{"BYTES", bytes}});
  }
  void wait() { cuda::check(driver().cuStreamSynchronize(stream_), "waiting for the GPU"); }

  template <class... A>
  void launch(CUfunction f, unsigned blocks, unsigned threads, A... arguments) {
    void* all[] = {&arguments...};
    cuda::check(driver().cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, 0, stream_, all, nullptr),
                "launching a kernel");
  }
  template <class... A>
  void launch(CUlaunchAttribute attribute, CUfunction f, unsigned blocks, unsigned threads,
              A... arguments) {
    void* all[] = {&arguments...};
    const CUlaunchConfig config{blocks, 1, 1, threads, 1, 1, 0, stream_, &attribute, 1};
    cuda::check(launch_ex_(&config, f, all, nullptr), "launching a kernel with an attribute");
  }
  static CUlaunchAttribute dependent() {
    CUlaunchAttribute a{};
    a.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    a.value.programmaticStreamSerializationAllowed = 1;
    return a;
  }
  static CUlaunchAttribute cooperative() {
    CUlaunchAttribute a{};
    a.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    a.value.cooperative = 1;
    return a;
  }
  static CUlaunchAttribute cluster_of(unsigned blocks) {
    CUlaunchAttribute a{};
    a.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    a.value.clusterDim.x = blocks;
    a.value.clusterDim.y = a.value.clusterDim.z = 1;
    return a;
  }

  /// Median host time of `enqueue()`; `after` is not timed.
  double host_us(const std::function<void()>& enqueue, const std::function<void()>& after) {
    measure::Samples samples;
    for (int i = 0; i < sizes_.host_repeats; ++i) {
      const auto begun = measure::Clock::now();
      enqueue();
      samples.add(measure::micros(measure::Clock::now() - begun));
      after();
    }
    return samples.median();
  }

  void add(std::string group, std::string name, std::string unit, double value) {
    report_.add({std::move(group), std::move(name), std::move(unit), value});
  }
  /// A figure that needs cuLaunchKernelEx; a failure costs this figure only.
  void add_hopper(const std::string& group, const std::string& name,
                  const std::function<double()>& us) {
    Figure f{group, name, "us", std::numeric_limits<double>::quiet_NaN(), why_not_};
    if (f.reason.empty()) try {
        f.value = us();
      } catch (const lockstep::DeviceError& error) {
        f.reason = error.what();
      }
    report_.add(std::move(f));
  }

  /// Raises the clocks of an idle GPU.
  void warm_up() {
    const CUfunction touch = find(plain_text, "touch");
    const auto begun = measure::Clock::now();
    do {
      for (int i = 0; i < sizes_.nodes; ++i) launch(touch, 132, 256, touched_);
      wait();
    } while (measure::micros(measure::Clock::now() - begun) < 1e6 * sizes_.warm_seconds);
  }

  void launches() {
    for (const unsigned blocks : sizes_.blocks)
      for (const unsigned threads : {32u, 256u})
        for (const char* const entry : {"empty", "touch"}) {
          const std::string name = fmt::format("{} blocks of {}{}", blocks, threads,
                                               entry[0] == 'e' ? ", empty" : ", read and write");
          const auto us = [&](const std::function<void()>& enqueue) {
            return timer_->us_in_graph(sizes_.nodes, enqueue);
          };
          const CUfunction plain = find(plain_text, entry);
          add("launch", name, "us", us([&] { launch(plain, blocks, threads, touched_); }));
          add_hopper("launch", name + ", dependent launch", [&] {
            const CUfunction f = find(hopper_text, entry);
            return us([&] { launch(dependent(), f, blocks, threads, touched_); });
          });
        }
  }

  void barriers() {
    const int rounds = sizes_.rounds;
    const auto sms = static_cast<unsigned>(gpu_.multiprocessors);
    constexpr std::array all{128u, 256u, 512u, 1024u};
    for (const unsigned threads : all)
      add_hopper("barrier", fmt::format("cluster of 8 blocks of {} threads", threads), [&] {
        const CUfunction f = find(hopper_text, "cluster_barriers");
        return timer_->us([&] {
          launch(cluster_of(8), f, sms / 8 * 8, threads, touched_, rounds);
        }) / rounds;
      });
    for (const unsigned threads : all) {
      const std::string blocks = fmt::format("grid of {} blocks of ", sms);
      add_hopper("barrier", fmt::format("{}{} threads", blocks, threads), [&] {
        const CUfunction f = find(hopper_text, "grid_barriers");
        return timer_->us([&] {
          cuda::check(driver().cuMemsetD8Async(touched_, 0, 8, stream_), "clearing memory");
          launch(cooperative(), f, sms, threads, touched_, rounds);
        }) / rounds;
      });
    }
  }

  void host() {
    const CUfunction empty = find(plain_text, "empty");
    for (const int nodes : {1, 10, 100, 563}) {
      CUgraphNode first = nullptr;
      const cuda::Graph graph(stream_, [&] {
        for (int i = 0; i < nodes; ++i) {
          launch(empty, 1, 32, touched_);
          if (i == 0) first = cuda::last_node(stream_);
        }
      });
      const cuda::GraphExec ready(graph);
      CUdeviceptr argument = touched_;
      void* arguments[] = {&argument};
      CUDA_KERNEL_NODE_PARAMS p{};
      p.func = empty;
      p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimY = p.blockDimZ = 1;
      p.blockDimX = 32;
      p.kernelParams = arguments;
      const auto set = [&] {
        cuda::check(driver().cuGraphExecKernelNodeSetParams(ready.get(), first, &p),
                    "changing a graph");
      };
      const auto enqueue = [&] { ready.launch(stream_); };
      const auto nothing = [] {};
      const std::string name = fmt::format("graph of {}, ", nodes);
      enqueue();
      wait();
      add("host", name + "the call", "us", host_us(enqueue, [&] { wait(); }));
      add("host", name + "call and wait", "us", host_us([&] { enqueue(), wait(); }, nothing));
      add("host", name + "arguments of a node", "us", host_us(set, nothing));
      add("host", name + "arguments, call and wait", "us",
          host_us([&] { set(), enqueue(), wait(); }, nothing));
      constexpr int row = 50;
      add("host", name + "50 in a row, each", "us", timer_->us([&] {
        for (int i = 0; i < row; ++i) enqueue();
      }) / row);
    }
  }

  void bandwidth() {
    const std::size_t most = *std::max_element(sizes_.kibibytes.begin(), sizes_.kibibytes.end());
    const CUdeviceptr x = allocate(most << 10), y = allocate(most << 10);
    for (const std::size_t size : sizes_.kibibytes) {
      const std::size_t bytes = size << 10;
      const auto rate = [&](const std::string& name, const std::function<void()>& enqueue) {
        add("bandwidth", fmt::format("{} KiB, {}", size, name), "GB/s",
            2e-3 * static_cast<double>(bytes) / timer_->us_in_graph(sizes_.copies, enqueue));
      };
      rate("the driver's copy", [&] {
        cuda::check(driver().cuMemcpyDtoDAsync(y, x, bytes, stream_), "copying memory");
      });
      for (const int word : {2, 4, 8, 16}) {
        const auto count = static_cast<cuda_i64>(bytes / static_cast<std::size_t>(word));
        const auto blocks = static_cast<unsigned>(std::min<cuda_i64>((count + 255) / 256, 65536));
        const std::string name = fmt::format("{} bytes a thread", word);
        const CUfunction copy = find(plain_text, "copy", word),
                         unrolled = find(plain_text, "copy_unrolled", word);
        rate(name, [&] { launch(copy, blocks, 256, x, y, count); });
        rate(name + ", 512 blocks, unrolled", [&] { launch(unrolled, 512, 256, x, y, count); });
      }
    }
  }

  using cuda_i64 = long long;
  Sizes sizes_;
  lockstep::Gpu gpu_;
  gpu_figures::Report& report_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  std::optional<gpu_time::Timer> timer_;
  decltype(&::cuLaunchKernelEx) launch_ex_ = nullptr;
  std::string why_not_;
  cuda::Programs programs_{gpu_.major * 10 + gpu_.minor};
  CUdeviceptr touched_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
  std::string json;
  bool small = false;
  CLI::App app{"What launches, barriers, graphs and copies cost on the first GPU."};
  app.add_option("--json", json, "write the figures to this file");
  app.add_flag("--small", small, "small sizes, few repeats: tries the program, measures nothing");
  CLI11_PARSE(app, count, arguments);
  Sizes sizes;
  if (small)
    sizes = {.nodes = 2,
             .copies = 2,
             .repeats = 2,
             .host_repeats = 3,
             .rounds = 10,
             .blocks = {1, 10},
             .kibibytes = {16, 64},
             .warm_seconds = 0};
  try {
    const lockstep::Gpu gpu = lockstep::gpus().at(0);
    fmt::print("{}, compute capability {}.{}, {} multiprocessors, {} MiB\n", gpu.name, gpu.major,
               gpu.minor, gpu.multiprocessors, gpu.memory >> 20);
    gpu_figures::Report report(gpu.name, json);
    Probe(sizes, gpu, report).run();
    if (report.failure().empty()) return 0;
    std::fputs(fmt::format("gpu_probe: {}\n", report.failure()).c_str(), stderr);
  } catch (const lockstep::Error& error) {
    std::fputs(fmt::format("gpu_probe: {}\n", error.what()).c_str(), stderr);
  }
  return 1;
}
