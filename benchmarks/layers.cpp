/// \file
/// Times single kernels of the CPU device, at batch 64, on the layers of the tutorials' MNIST
/// program and of ResNet-56 (its 3 x 3 convolutions by image shape, a normalization), on
/// augmentations of CIFAR-10's images, on layers of larger image networks, and on attention of 4
/// examples with GPT-2's 12 heads of 64; also oneDNN's primitives for some of them. Argument of a benchmark: threads. `--benchmark_filter=Conv` selects
/// some. peers/layers.py adds PyTorch's ops and the roofline, computed from the counters:
/// floating-point operations, and the bytes that a pass must read and write once. `copy` copies as
/// many bytes as the first layer's features have.
#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/collectives/self_group.hpp"
#include "lockstep/cpu.hpp"
#include "lockstep/layers/layers.hpp"
#include "onednn_ops.hpp"

namespace {

using namespace lockstep;

/// Device memory for one kernel, filled with numbers that speed up no kernel.
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

enum class Timed { forward, backward, backward_without_dx };

void set_counters(benchmark::State& state, double operations, double bytes) {
  using benchmark::Counter;
  state.counters["flop"] = operations;
  state.counters["bytes"] = bytes;
  if (operations > 0)
    state.counters["GFLOP/s"] = Counter(operations * 1e-9, Counter::kIsIterationInvariantRate);
}

template <class O>
void run(benchmark::State& state, const O& op, std::size_t in, std::size_t weights, Timed pass) {
  using K = Kernel<O, Cpu>;
  constexpr std::size_t count = 64;
  Bench bench(static_cast<int>(state.range(0)));
  const auto scope = bench.context.scope();
  SelfGroup alone;
  const StepContext step{whole_batch(count), true, 1, 0, CollectiveRef(alone)};
  const std::size_t out = op.out().size();
  const std::array<const float*, 2> x{bench.floats(count * in), bench.floats(count * in)};
  std::array<float*, 2> dx{bench.floats(count * in), bench.floats(count * in)};
  Io<Cpu> io{step,
             bench.context,
             1,
             x.data(),
             bench.floats(count * out),
             bench.floats(weights),
             bench.floats(weights),  // normalization has as much state
             bench.bytes(count * K::saved(op)),
             bench.bytes(K::saved_once(op)),
             nullptr,
             bench.floats(count * out),
             dx.data(),
             bench.floats(weights)};
  if (pass == Timed::backward_without_dx) dx[0] = nullptr;
  const auto time = [&](auto&... prepared) {
    K::forward(op, io, prepared...);
    for (auto _ : state) {
      if (pass == Timed::forward) {
        K::forward(op, io, prepared...);
      } else {
        if constexpr (detail::IsRecurrent<O>) {  // overwrites what forward saved
          state.PauseTiming();
          K::forward(op, io, prepared...);
          state.ResumeTiming();
        }
        K::backward(op, io, prepared...);
      }
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
  const bool back = pass != Timed::forward;
  double operations = 0;
  if constexpr (requires { op.flops(); })
    operations = op.flops() * count * (pass == Timed::backward ? 2 : 1);
  const std::size_t written = pass == Timed::backward ? in : 0;
  const std::size_t read_again =
      (detail::keeps_operand<K>(op, 0) ? in : 0) + (K::keeps_y ? out : 0);
  const std::size_t elements = count * (back ? out + written + read_again : in + out) +
                               weights * (back ? (pass == Timed::backward ? 2 : 1) : 1);
  set_counters(state, operations,
               static_cast<double>(elements * sizeof(float) + count * K::saved(op)));
}

template <class O>
void add(const char* name, const O& op, std::size_t in, std::size_t weights,
         const std::function<onednn_ops::Chain(bool backward)>& theirs = {},
         Timed backward = Timed::backward) {
  for (const Timed pass : {Timed::forward, backward}) {
    const std::string end = std::string(name) + (pass == Timed::forward ? "/forward" : "/backward");
    const auto add_one = [](const std::string& title, const auto& body) {
      benchmark::RegisterBenchmark(title.c_str(), body)
          ->Arg(1)
          ->Arg(2)
          ->UseRealTime()
          ->Unit(benchmark::kMicrosecond);
    };
    add_one(end, [=](benchmark::State& state) { run(state, op, in, weights, pass); });
    if (!theirs) continue;
    add_one("oneDNN " + end, [=](benchmark::State& state) {
      Bench bench(static_cast<int>(state.range(0)));
      const auto scope = bench.context.scope();
      auto chain = theirs(pass != Timed::forward);
      chain();
      for (auto _ : state) chain();
    });
  }
}

/// Attention of 4 examples with 12 heads of 64, between the projections.
void attend(benchmark::State& state, int steps, bool is_causal, Timed pass) {
  using K = Kernel<DotProductAttentionOp, Cpu>;
  constexpr std::size_t count = 4;
  const DotProductAttentionOp op{steps, steps, 12, 12, 64, 64, {.causal = is_causal}};
  Bench bench(static_cast<int>(state.range(0)));
  const auto scope = bench.context.scope();
  SelfGroup alone;
  const StepContext step{whole_batch(count), true, 1, 0, CollectiveRef(alone)};
  auto prepared = K::prepare(op, bench.context, count);
  const auto floats = [&] { return bench.floats(count * op.q_size()); };
  const AttentionIo<Cpu> io{step,
                            bench.context,
                            1,
                            floats(),
                            floats(),
                            floats(),
                            nullptr,
                            nullptr,
                            floats(),
                            bench.floats(count * op.rows()),
                            bench.bytes(prepared.scratch_bytes()),
                            floats(),
                            floats(),
                            floats(),
                            floats()};
  K::forward(op, io, prepared);
  for (auto _ : state) {
    if (pass == Timed::forward)
      K::forward(op, io, prepared);
    else
      K::backward(op, io, prepared);
    benchmark::ClobberMemory();
  }
  // Backward computes the scores again, and four products.
  const double passes = pass == Timed::forward ? 1 : 2.5;
  set_counters(
      state, passes * op.flops() * count,
      (pass == Timed::forward ? 4 : 8) * static_cast<double>(count * op.q_size()) * sizeof(float));
}

void add_attention(const std::string& name, int steps, bool is_causal) {
  for (const Timed pass : {Timed::forward, Timed::backward})
    benchmark::RegisterBenchmark(
        (name + (pass == Timed::forward ? "/forward" : "/backward")).c_str(),
        [=](benchmark::State& state) { attend(state, steps, is_causal, pass); })
        ->Arg(1)
        ->Arg(2)
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
}

void copy(benchmark::State& state, std::size_t size) {
  const int threads = static_cast<int>(state.range(0));
  Bench bench(threads);
  const auto scope = bench.context.scope();
  const float* const from = bench.floats(size);
  float* const to = bench.floats(size);
  for (auto _ : state) {
    detail::parallel_ranges(threads, size, 1, [&](Slice s, std::size_t) {
      std::memcpy(to + s.first, from + s.first, s.count * sizeof(float));
    });
    benchmark::ClobberMemory();
  }
  set_counters(state, 0, static_cast<double>(2 * size * sizeof(float)));
}

}  // namespace

int main(int argc, char** argv) {
  const Shape image = shape(28, 28, 1), features = shape(26, 26, 32);
  const auto conv = Conv2D<32, 3>::op(image);
  const auto rectify = ReLU::op(features);
  const auto dense = Dense<64>::op(shape(5408));
  const auto last = Dense<10>::op(shape(64));
  const auto max = MaxPooling2D<>::op(features);
  const auto average = AveragePooling2D<>::op(features);
  constexpr std::ptrdiff_t count = 64;
  using dnnl::algorithm;
  const auto eltwise = [](algorithm which, std::size_t size) {
    return [=](bool back) { return onednn_ops::eltwise(which, size, count, back); };
  };
  const auto convolution = [=](bool with_relu, const Pooling2DWindow* pool) {
    return [=](bool back) {
      return onednn_ops::convolution(conv, with_relu, pool, count, back, false);
    };
  };
  const std::size_t conv_weights = conv.kernel_size() + 32;
  const Timed first = Timed::backward_without_dx;
  add("Conv2D", conv, image.size(), conv_weights, convolution(false, nullptr), first);
  add("ReLU", rectify, features.size(), 0,
      eltwise(algorithm::eltwise_relu_use_dst_for_bwd, features.size()));
  add("Conv2D+ReLU", ConvReLUOp{conv, rectify}, image.size(), conv_weights,
      convolution(true, nullptr), first);
  add("Conv2D+ReLU+MaxPooling2D", ConvReLUPoolOp{conv, rectify, max}, image.size(), conv_weights,
      convolution(true, &max.window), first);
  add("MaxPooling2D", max, features.size(), 0,
      [=](bool back) { return onednn_ops::pool(max.window, true, count, back); });
  add("AveragePooling2D", average, features.size(), 0,
      [=](bool back) { return onednn_ops::pool(average.window, false, count, back); });
  const auto add_3x3 = [&](const char* name, const Conv2DOp& op) {
    add(name, op, op.in.size(), op.kernel_size() + static_cast<std::size_t>(op.filters),
        [=](bool back) { return onednn_ops::convolution(op, false, nullptr, count, back, true); });
  };
  add_3x3("Conv2D 32x32x16", Conv2D<16, 3, same>::op(shape(32, 32, 16)));
  add_3x3("Conv2D 16x16x32", Conv2D<32, 3, same>::op(shape(16, 16, 32)));
  add_3x3("Conv2D 8x8x64", Conv2D<64, 3, same>::op(shape(8, 8, 64)));
  const auto norm = BatchNormalization<>::op(shape(32, 32, 16));
  add("BatchNormalization", norm, norm.in.size(), 2 * norm.channels(),
      [=](bool back) { return onednn_ops::batch_normalization(norm, count, back); });
  const auto add_dense = [&](const char* name, const auto& op, const DenseOp& d, bool with_relu) {
    const auto inputs = static_cast<std::size_t>(d.inputs);
    add(name, op, inputs, d.kernel_size() + static_cast<std::size_t>(d.units),
        [=](bool back) { return onednn_ops::dense(d, with_relu, count, back); });
  };
  const auto wide = Dense<512>::op(shape(512));
  add_dense("Dense64", dense, dense, false);
  add_dense("Dense64+ReLU", DenseReLUOp{dense, ReLU::op(shape(64))}, dense, true);
  add_dense("Dense512+ReLU", DenseReLUOp{wide, ReLU::op(shape(512))}, wide, true);
  add_dense("Dense10", last, last, false);
  add("GELU", GELU::op(features), features.size(), 0,
      eltwise(algorithm::eltwise_gelu_erf, features.size()));
  const Shape photo = shape(32, 32, 3);
  add("RandomCrop", RandomCrop<28, 28>::op(photo), photo.size(), 0);
  add("RandomFlip", RandomFlip<>::op(photo), photo.size(), 0);
  add("RandomTranslation", RandomTranslation<factor(0.1), factor(0.1)>::op(photo), photo.size(), 0);
  add("RandomRotation", RandomRotation<factor(0.1)>::op(photo), photo.size(), 0);
  add("RandomCutout", RandomCutout<8>::op(photo), photo.size(), 0);
  const auto depthwise = DepthwiseConv2D<3, same>::op(shape(56, 56, 128));  // of MobileNet
  add("DepthwiseConv2D", depthwise, depthwise.in.size(), depthwise.kernel_size() + 128);
  const auto separable = SeparableConv2D<128, 3, same>::op(shape(28, 28, 128));
  add("SeparableConv2D", separable, shape(28, 28, 128).size(), 9 * 128 + 128 * 128 + 128);
  const auto transposed = Conv2DTranspose<64, 4, same, strides(2)>::op(shape(14, 14, 128));
  add("Conv2DTranspose", transposed, transposed.in.size(), transposed.kernel_size() + 64);
  const Shape series = shape(100, 64);
  const auto lstm = LSTM<128>::op(series);
  const auto gru = GRU<128>::op(series);
  add("LSTM128", lstm, series.size(), lstm.weights());
  add("GRU128", gru, series.size(), gru.weights());
  add("UpSampling2D", UpSampling2D<>::op(features), features.size(), 0);
  add("UpSampling2D-bilinear", UpSampling2D<2, bilinear>::op(features), features.size(), 0);
  for (const int steps : {64, 256, 1024}) {
    add_attention("Attention " + std::to_string(steps), steps, false);
    add_attention("Attention-causal " + std::to_string(steps), steps, true);
  }
  benchmark::RegisterBenchmark(
      "copy", [size = count * features.size()](benchmark::State& state) { copy(state, size); })
      ->Arg(1)
      ->Arg(2)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);

  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
