/// \file
/// Compares fused kernels of the CPU device with the kernels that a plan without them runs, in
/// turn, in one run. A fused kernel is kept if its ratio is at least 1.2 on a shape that a model
/// uses.
///
/// - `pooled`: Conv2D, ReLU and MaxPooling2D in one pass, against oneDNN's convolution with ReLU,
///   our loops for its weight gradient, and our pooling. No gradient of the images.
/// - `dense`: forward, backward and SGD's update of a dense layer with ReLU, on one thread, against
///   oneDNN's with an update after them. Ours writes the gradient of x over x.
/// - `cross-entropy`: softmax, loss and gradient in one pass, against oneDNN's softmax and a loop.
/// - `update`: the optimizer's pass over the tutorials' network, against a plain loop.
///
/// Usage: fused [--threads N] [--batch N] [--rounds N] [--vectors BYTES]
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>
#include <lockstep/reference.hpp>

#include "measure.hpp"

namespace {

using namespace lockstep;

struct Options {
  int threads = 1;
  std::size_t batch = 64, rounds = 100;
  std::size_t vectors = detail::longest_vectors();
};

/// Device memory, filled with positive and negative numbers.
class Memory {
 public:
  explicit Memory(Cpu::Context& context) : context_(context) {}
  ~Memory() {
    for (const auto& [p, n] : blocks_) context_.release(p, n);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* bytes(std::size_t n) {
    blocks_.emplace_back(context_.allocate(n), n);
    context_.clear(blocks_.back().first, n);
    return blocks_.back().first;
  }
  float* floats(std::size_t n) {
    const auto p = reinterpret_cast<float*>(bytes(n * sizeof(float)));
    for (std::size_t i = 0; i < n; ++i)
      p[i] = static_cast<float>(philox4x32({static_cast<std::uint32_t>(i), 0, 0, 0}, {7, 7})[0]) *
                 0x1p-31f -
             1.0f;
    return p;
  }

 private:
  Cpu::Context& context_;
  std::vector<std::pair<std::byte*, std::size_t>> blocks_;
};

/// Times ours and theirs in turn. The first call of each turn warms the caches and does not count.
template <class Ours, class Theirs>
void compare(const std::string& what, const Options& options, double flops, const Ours& ours,
             const Theirs& theirs) {
  measure::Samples own, other;
  const auto time = [](measure::Samples& samples, const auto& run) {
    run();
    const auto begin = measure::Clock::now();
    run();
    samples.add(measure::micros(measure::Clock::now() - begin));
  };
  for (std::size_t round = 0; round < options.rounds; ++round) {
    time(own, ours);
    time(other, theirs);
  }
  fmt::print("{:34} {:8.1f} {:8.1f} {:9.1f} {:8.1f} {:8.2f} {:6.2f}", what, own.median(), own.min(),
             other.median(), other.min(), other.median() / own.median(), other.min() / own.min());
  if (flops > 0) fmt::print(" {:8.0f}", flops / own.min() * 1e-3);
  fmt::print("\n");
}

void pooled(const char* name, const Conv2DOp& conv, const Options& options) {
  using Loops = detail::PooledConvolution<float>;
  using Unfused = Kernel<ConvReLUOp, Cpu>;
  using Pool = Kernel<MaxPooling2DOp, Cpu>;
  auto context = Cpu{.threads = options.threads}.open(1, 0);
  const auto scope = context.scope();
  Memory memory(context);
  const std::size_t count = options.batch;
  const Shape out = conv.out();
  const ConvReLUOp relu{conv, ReLU::op(out)};
  const auto pool = MaxPooling2D<>::op(out);
  const std::size_t weights = conv.kernel_size() + static_cast<std::size_t>(conv.filters);

  const float* const x = memory.floats(count * conv.in.size());
  const float* const w = memory.floats(weights);
  float* const dy = memory.floats(count * pool.out().size());
  float* const convolved = memory.floats(count * out.size());
  float* const convolved_gradient = memory.floats(count * out.size());
  float* const y = memory.floats(count * pool.out().size());
  float* const dw = memory.floats(weights);

  auto prepared = Unfused::prepare(relu, context, count);
  auto pooling = Pool::prepare(pool, context, count);
  SelfGroup group;
  const StepContext step{whole_batch(count), true, 1, 0, CollectiveRef(group)};
  float* const no_gradient = nullptr;
  Io<Cpu> conv_io{step,
                  context,
                  1,
                  &x,
                  convolved,
                  w,
                  nullptr,
                  nullptr,
                  nullptr,
                  memory.bytes(prepared.scratch_bytes()),
                  convolved_gradient,
                  &no_gradient,
                  dw};
  Io<Cpu> pool_io = conv_io;
  pool_io.x = &convolved;
  pool_io.y = y;
  pool_io.saved = memory.bytes(count * Pool::saved(pool));
  pool_io.dy = dy;
  pool_io.dx = &convolved_gradient;
  pool_io.scratch = memory.bytes(pooling.scratch_bytes());

  const Loops loops(conv, options.threads, options.vectors);
  std::byte* const scratch = memory.bytes(loops.scratch_bytes());
  std::byte* const winners = memory.bytes(count * Loops::winners_bytes(conv));
  const double flops = conv.flops() * static_cast<double>(count);
  compare(
      std::string("pooled ") + name + " forward", options, flops,
      [&] { loops.forward(count, x, w, w + conv.kernel_size(), y, winners, scratch); },
      [&] {
        Unfused::forward(relu, conv_io, prepared);
        Pool::forward(pool, pool_io, pooling);
      });
  compare(
      std::string("pooled ") + name + " backward", options, flops,
      [&] { loops.backward(count, x, dy, winners, dw, dw + conv.kernel_size(), scratch); },
      [&] {
        Pool::backward(pool, pool_io, pooling);
        Unfused::backward(relu, conv_io, prepared);
      });
}

void dense(const DenseOp& op, const Options& options) {
  using Calls = detail::InnerProductCalls<Cpu>;
  if (!detail::DenseTiles::fits(op, options.batch, options.threads)) return;
  auto context = Cpu{.threads = options.threads}.open(1, 0);
  const auto scope = context.scope();
  Memory memory(context);
  const std::size_t count = options.batch, inputs = static_cast<std::size_t>(op.inputs),
                    units = static_cast<std::size_t>(op.units), weights = (inputs + 1) * units;
  Calls ours(op, context, count, true), theirs(op, context, count, true, false);
  SelfGroup group;
  const StepContext step{whole_batch(count), true, 1, 0, CollectiveRef(group)};
  float* const x = memory.floats(count * inputs);
  float* const dx = memory.floats(count * inputs);
  Io<Cpu> io{step,
             context,
             1,
             &x,
             memory.floats(count * units),
             memory.floats(weights),
             nullptr,
             nullptr,
             nullptr,
             memory.bytes(std::max(ours.scratch_bytes(), theirs.scratch_bytes())),
             memory.floats(count * units),
             &dx,
             memory.floats(weights)};
  Io<Cpu> over = io;
  over.dx = &x;
  struct Update {
    const Io<Cpu>& io;
    float* w;
    void operator()(float* dw, std::size_t size) const {
      Kernel<SGDOp, Cpu>::update(SGDOp{1e-6}, {io.device, size, w + (dw - io.dw), dw, {}, {}});
    }
  } update{io, const_cast<float*>(io.w)};
  over.update = UpdateRef<float>(update);
  compare(
      fmt::format("dense {} to {}", inputs, units), options,
      3 * op.flops() * static_cast<double>(count),
      [&] {
        ours.forward(op, over);
        ours.backward(op, over);
      },
      [&] {
        theirs.forward(op, io);
        theirs.backward(op, io);
        update(io.dw, weights);
      });
}

template <class O>
void update(const char* name, const O& optimizer, const Options& options) {
  constexpr std::size_t size = 347'146;
  auto context = Cpu{.threads = options.threads}.open(1, 0);
  auto plain_context = Reference<float>{}.open(1, 0);
  const auto scope = context.scope();
  Memory memory(context);
  const auto op = optimizer.op(1e-4, 1);
  float* const w = memory.floats(size);
  float* const g = memory.floats(size);
  std::array<float*, max_slots> slots{};
  for (std::size_t i = 0; i < optimizer.slot_count(); ++i)
    slots[i] = reinterpret_cast<float*>(memory.bytes(size * sizeof(float)));
  using Op = std::remove_cvref_t<decltype(op)>;
  compare(
      std::string("update ") + name, options, 0,
      [&] { Kernel<Op, Cpu>::update(op, {context, size, w, g, slots, {}}); },
      [&] { Kernel<Op, Reference<float>>::update(op, {plain_context, size, w, g, slots, {}}); });
}

/// Compared with oneDNN's softmax and a loop that computes loss and gradient from its result.
void crossentropy(int classes, const Options& options) {
  auto context = Cpu{.threads = options.threads}.open(1, 0);
  const auto scope = context.scope();
  Memory memory(context);
  const std::size_t count = options.batch, size = static_cast<std::size_t>(classes);
  const SoftmaxOp softmax{shape(classes)};
  float* const logits = memory.floats(count * size);
  float* const p = memory.floats(count * size);
  float* const g = memory.floats(count * size);
  const std::vector<std::int32_t> labels(count, 1);
  double sum = 0;
  auto prepared = Kernel<SoftmaxOp, Cpu>::prepare(softmax, context, count);
  SelfGroup group;
  const StepContext step{whole_batch(count), true, 1, 0, CollectiveRef(group)};
  Io<Cpu> io{step,    context, 1,       &logits, p,
             nullptr, nullptr, nullptr, nullptr, memory.bytes(prepared.scratch_bytes()),
             nullptr, nullptr, nullptr};
  compare(
      fmt::format("cross-entropy of {}", classes), options, 0,
      [&] {
        Kernel<SparseCategoricalCrossentropyOp, Cpu>::run(
            {classes, true}, {context, count, logits, labels.data(), g, 1e-2, &sum});
      },
      [&] {
        Kernel<SoftmaxOp, Cpu>::forward(softmax, io, prepared);
        for (std::size_t n = 0; n < count; ++n) {
          const auto y = static_cast<std::size_t>(labels[n]);
          const float* const row = p + n * size;
          sum -= std::log(static_cast<double>(row[y]));
          for (std::size_t k = 0; k < size; ++k) g[n * size + k] = row[k] * 1e-2f;
          g[n * size + y] -= 1e-2f;
        }
      });
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Fused kernels compared with the kernels that they replace"};
  app.add_option("--threads", options.threads)->check(CLI::Range(1, 1024));
  app.add_option("--batch", options.batch)->check(CLI::Range(1, 1 << 16));
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 1 << 20));
  app.add_option("--vectors", options.vectors, "bytes; at most the processor's vector width")
      ->check(CLI::IsMember(
          std::vector<std::size_t>{0, detail::vector_bytes, detail::longest_vectors()}));
  CLI11_PARSE(app, argc, argv);
  fmt::print("threads {}, batch {}, vectors of {} bytes; microseconds\n", options.threads,
             options.batch, options.vectors);
  fmt::print("{:34} {:>8} {:>8} {:>9} {:>8} {:>8} {:>6} {:>8}\n", "", "median", "min", "unfused",
             "min", "ratio", "of min", "GFLOP/s");
  pooled("28x28x1, 32 of 3x3", Conv2D<32, 3>::op(shape(28, 28, 1)), options);
  pooled("28x28x1, 32 of 5x5", Conv2D<32, 5, same>::op(shape(28, 28, 1)), options);
  pooled("32x32x3, 32 of 3x3", Conv2D<32, 3>::op(shape(32, 32, 3)), options);
  pooled("64x64x3, 16 of 3x3", Conv2D<16, 3, same>::op(shape(64, 64, 3)), options);
  for (const int inputs : {1024, 1600, 3136, 5408}) dense({inputs, 64, true}, options);
  for (const int classes : {10, 100, 1000, 10'000}) crossentropy(classes, options);
  update("SGD", SGD{}, options);
  update("SGD with momentum", SGD{.momentum = 0.9}, options);
  update("Adam", Adam{}, options);
}
