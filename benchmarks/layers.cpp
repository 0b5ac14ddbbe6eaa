/// \file
/// Times the kernels of the CPU device, one at a time, on the layers of the tutorials' MNIST
/// program at batch 64. Arguments of a benchmark: threads. `--benchmark_filter=Conv` picks some.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "lockstep/cpu.hpp"
#include "lockstep/layers/layers.hpp"

namespace {

using namespace lockstep;

struct Alone {
  std::size_t rank() const { return 0; }
  std::size_t size() const { return 1; }
  void abort() {}
  void all_reduce(float*, std::size_t) {}
  void all_reduce(double*, std::size_t) {}
  void all_gather(const std::byte*, std::size_t, std::byte*) {}
};

/// Memory of the device for one kernel, filled with numbers that make no kernel's work easier.
class Bench {
 public:
  explicit Bench(int threads) : context(Cpu{.threads = threads}.open(1, 0)) {}
  ~Bench() {
    for (const auto& [p, bytes] : blocks_) context.release(p, bytes);
  }
  std::byte* bytes(std::size_t n) {
    blocks_.push_back({context.allocate(n), n});
    context.clear(blocks_.back().first, n);
    return blocks_.back().first;
  }
  float* floats(std::size_t n) {
    float* const p = reinterpret_cast<float*>(bytes(n * sizeof(float)));
    for (std::size_t i = 0; i < n; ++i)
      p[i] = static_cast<float>(philox4x32({static_cast<std::uint32_t>(i), 0, 0, 0}, {7, 7})[0]) *
                 0x1p-31f -
             1.0f;
    return p;
  }
  CpuContext<float> context;

 private:
  std::vector<std::pair<std::byte*, std::size_t>> blocks_;
};

enum class Pass { forward, backward, backward_without_dx };

template <class O>
void run(benchmark::State& state, const O& op, std::size_t in, std::size_t weights, Pass pass) {
  using K = Kernel<O, Cpu>;
  constexpr std::size_t count = 64;
  Bench bench(static_cast<int>(state.range(0)));
  const auto scope = bench.context.scope();
  Alone alone;
  const StepContext step{true, 1, 0, 0, 0, count, count, CollectiveRef(alone)};
  const std::size_t out = op.out().size();
  Io<Cpu> io{step,
             bench.context,
             count,
             1,
             bench.floats(count * in),
             bench.floats(count * in),
             bench.floats(count * out),
             bench.floats(weights),
             nullptr,
             bench.bytes(count * K::saved(op)),
             bench.bytes(K::saved_once(op)),
             nullptr,
             bench.floats(count * out),
             bench.floats(count * in),
             bench.floats(count * in),
             bench.floats(weights)};
  if (pass == Pass::backward_without_dx) io.dx = nullptr;
  const auto time = [&](auto&... prepared) {
    K::forward(op, io, prepared...);
    for (auto _ : state) {
      if (pass == Pass::forward)
        K::forward(op, io, prepared...);
      else
        K::backward(op, io, prepared...);
      benchmark::ClobberMemory();
    }
  };
  if constexpr (requires { typename K::Prepared; }) {
    auto prepared = K::prepare(op, bench.context, count);
    io.scratch = bench.bytes(prepared.scratch_bytes());
    time(prepared);
  } else {
    time();
  }
  if constexpr (requires { op.flops(); }) {
    const double passes = pass == Pass::backward ? 2 : 1;
    state.counters["GFLOP/s"] = benchmark::Counter(op.flops() * count * passes * 1e-9,
                                                   benchmark::Counter::kIsIterationInvariantRate);
  }
}

template <class O>
void add(const char* name, const O& op, std::size_t in, std::size_t weights,
         Pass backward = Pass::backward) {
  for (const Pass pass : {Pass::forward, backward})
    benchmark::RegisterBenchmark(
        (std::string(name) + (pass == Pass::forward ? "/forward" : "/backward")).c_str(),
        [=](benchmark::State& state) { run(state, op, in, weights, pass); })
        ->Arg(1)
        ->Arg(2)
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  const Shape image = shape(28, 28, 1), features = shape(26, 26, 32);
  const auto conv = Conv2D<32, 3>::op(image);
  const auto relu = ReLU::op(features);
  const auto dense = Dense<64>::op(shape(5408));
  const auto last = Dense<10>::op(shape(64));
  add("Conv2D", conv, image.size(), conv.kernel_size() + 32, Pass::backward_without_dx);
  add("ReLU", relu, features.size(), 0);
  add("Conv2D+ReLU", ConvReLUOp{conv, relu}, image.size(), conv.kernel_size() + 32,
      Pass::backward_without_dx);
  add("MaxPooling2D", MaxPooling2D<>::op(features), features.size(), 0);
  add("AveragePooling2D", AveragePooling2D<>::op(features), features.size(), 0);
  add("Dense64", dense, 5408, dense.kernel_size() + 64);
  add("Dense64+ReLU", DenseReLUOp{dense, ReLU::op(shape(64))}, 5408, dense.kernel_size() + 64);
  add("ReLU64", ReLU::op(shape(64)), 64, 0);
  add("Dense10", last, 64, last.kernel_size() + 10);
  add("GELU", GELU::op(features), features.size(), 0);

  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
