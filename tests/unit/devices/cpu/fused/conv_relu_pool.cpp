/// \file
/// Convolution fused with ReLU and max pooling, for each vector length.
#include <cmath>
#include <cstring>
#include <utility>

#include "lockstep/devices/cpu/fused/conv_relu_pool.hpp"
#include "lockstep/devices/cpu/fused/pooled_convolution.hpp"
#include "lockstep/layers/layers.hpp"
#include "support/pooled_convolutions.hpp"
#include "unit/devices/cpu/conv2d_ops.hpp"

using namespace lockstep;
using namespace testing;

namespace {

/// A generated convolution to which the fusion rule applies.
ConvReLUPoolOp generated(Philox& g) {
  for (;;) {
    Conv2DOp op = generated_convolution(g);
    op.in.extent[0] += between(g, 0, 12);
    op.in.extent[1] += between(g, 0, 12);
    op.in.extent[2] = between(g, 1, 4);
    op.filters = one_of(g, 16, 32, 48, 64);
    const ConvReLUPoolOp result = pooled(op);
    if (op.out()[0] >= 2 && op.out()[1] >= 2) return result;
  }
}

/// The vector lengths that this processor supports; 0 stands for the plain loops.
std::vector<std::size_t> vectors() {
  std::vector<std::size_t> result{0};
  if (lockstep::detail::has_vectors()) result.push_back(lockstep::detail::vector_bytes);
  if (lockstep::detail::has_wide_vectors()) result.push_back(lockstep::detail::wide_vector_bytes);
  return result;
}

/// Runs the loops with one vector length, in buffers of exactly the requested size.
LayerResult<float> with_vectors(const ConvReLUPoolOp& op, std::size_t count, const Numbers& n,
                                int threads, std::size_t bytes) {
  using Loops = lockstep::detail::PooledConvolution<float>;
  const Loops loops(op.conv, threads, bytes);
  auto context = Cpu{.threads = threads}.open(1, 0);
  const auto scope = context.scope();
  const std::size_t bias = op.conv.kernel_size();
  DeviceArray<Cpu, float> x(context, n.x), w(context, n.w), dy(context, n.dy);
  DeviceArray<Cpu, float> y(context, n.dy.size()), dw(context, n.w.size());
  DeviceArray<Cpu, std::byte> winners(context, count * Kernel<ConvReLUPoolOp, Cpu>::saved(op)),
      scratch(context, loops.scratch_bytes());
  loops.forward(count, x.data(), w.data(), op.conv.bias ? w.data() + bias : nullptr, y.data(),
                winners.data(), scratch.data());
  scratch.poison();
  loops.backward(count, x.data(), dy.data(), winners.data(), dw.data(),
                 op.conv.bias ? dw.data() + bias : nullptr, scratch.data());
  LayerResult<float> result;
  result.y = y.download();
  result.dw = dw.download();
  return result;
}

}  // namespace

TEST_CASE("convolution fused with ReLU and max pooling agrees with the three ops in double") {
  Philox g(21);
  for (int i = 0; i < generated_shapes; ++i) {
    const ConvReLUPoolOp op = generated(g);
    REQUIRE(ConvReLUPoolOp::fits(op.conv, op.relu, op.pool));
    REQUIRE(Kernel<ConvReLUPoolOp, Cpu>::fits(op));
    INFO(describe(op.conv));
    const auto count = static_cast<std::size_t>(one_of(g, 1, 2, 5, 17, 19));
    INFO("examples " << count);
    Numbers n = numbers(op, op.conv.in.size(), weights_of(op.conv), count);
    make_coarse(n);
    const auto expected = one_by_one(op, count, n);
    for (const int threads : {1, 2})
      check_close(run(op, count, n, Cpu{.threads = threads}, false), expected);
    for (const std::size_t bytes : vectors()) {
      INFO("vectors of " << bytes << " bytes");
      check_close(with_vectors(op, count, n, 1, bytes), expected);
    }
  }
}

TEST_CASE("among equal maxima the first wins, and only if it is positive") {
  Philox g(22);
  for (int i = 0; i < generated_shapes; ++i) {
    const ConvReLUPoolOp op = generated(g);
    INFO(describe(op.conv));
    Numbers n = numbers(op, op.conv.in.size(), weights_of(op.conv), 3);
    // Small integers: many ties, and all sums are exact.
    for (auto* values : {&n.x, &n.w, &n.dy})
      for (float& v : *values) v = std::round(v);
    const auto expected = one_by_one(op, 3, n);
    for (const std::size_t bytes : vectors()) {
      INFO("vectors of " << bytes << " bytes");
      const auto result = with_vectors(op, 3, n, 1, bytes);
      CHECK(as<double>(result.y) == expected.y);
      CHECK(as<double>(result.dw) == expected.dw);
    }
  }
}

TEST_CASE("the bits of a pooled convolution do not depend on the number of threads") {
  Philox g(23);
  for (int i = 0; i < 12; ++i) {
    const ConvReLUPoolOp op = generated(g);
    INFO(describe(op.conv));
    const auto count = static_cast<std::size_t>(between(g, 1, 40));
    const Numbers n = numbers(op, op.conv.in.size(), weights_of(op.conv), count);
    const auto one = run(op, count, n, Cpu{.threads = 1}, false);
    for (const int threads : {2, 3, 5}) {
      const auto more = run(op, count, n, Cpu{.threads = threads}, false);
      CHECK(more.y == one.y);
      CHECK(more.dw == one.dw);
    }
  }
}

TEST_CASE("a pooled convolution without examples has a zero gradient, and NaN propagates") {
  const ConvReLUPoolOp op = pooled(Conv2D<32, 3>::op(shape(8, 8, 1)));
  Numbers n = numbers(op, op.conv.in.size(), weights_of(op.conv), 0);
  CHECK(run(op, 0, n, Cpu{}, false).dw == std::vector<float>(n.w.size(), 0.0f));
  n = numbers(op, op.conv.in.size(), weights_of(op.conv), 1);
  const auto clean = with_vectors(op, 1, n, 1, 0);
  float* const pixel = &n.x[8 * 4 + 4];  // results in rows and columns 2 to 4 see it
  float* const weight = &n.w[4 * 32];
  const std::vector<std::pair<float*, float>> cases{
      {pixel, std::nanf("")}, {pixel, HUGE_VALF}, {weight, std::nanf("")}};
  for (const auto& [where, value] : cases) {
    const float before = std::exchange(*where, value);
    const auto plain = with_vectors(op, 1, n, 1, 0);
    for (const std::size_t bytes : vectors()) {
      const auto run = with_vectors(op, 1, n, 1, bytes);
      for (std::size_t i = 0; i < run.y.size(); ++i) {
        INFO("vectors of " << bytes << " bytes, result " << i);
        CHECK((run.y[i] == plain.y[i] || std::abs(run.y[i] - plain.y[i]) < 1e-5f ||
               (std::isnan(run.y[i]) && std::isnan(plain.y[i]))));
        const std::size_t row = i / 32 / 3, column = i / 32 % 3, filter = i % 32;
        const bool sees = where == weight ? filter == 0 : row >= 1 && column >= 1;
        if (sees && std::isnan(value)) CHECK(std::isnan(run.y[i]));
        if (!sees) CHECK(std::abs(run.y[i] - clean.y[i]) < 1e-5f);
      }
    }
    *where = before;
  }
}

namespace {

struct First
    : Sequential<Input<28, 28, 1>, Conv2D<32, 3>, ReLU, MaxPooling2D<>, Flatten, Dense<10>> {};
struct Second
    : Sequential<Input<28, 28, 4>, Dropout<rate(0.5f)>, Conv2D<32, 3>, ReLU, MaxPooling2D<>> {};
struct ManyChannels : Sequential<Input<28, 28, 5>, Conv2D<32, 3>, ReLU, MaxPooling2D<>> {};
struct OddFilters : Sequential<Input<28, 28, 1>, Conv2D<20, 3>, ReLU, MaxPooling2D<>> {};
struct LargePool : Sequential<Input<28, 28, 1>, Conv2D<32, 3>, ReLU, MaxPooling2D<3>> {};
struct Overlapping
    : Sequential<Input<28, 28, 1>, Conv2D<32, 3>, ReLU, MaxPooling2D<2, strides(1)>> {};
struct CutWindows : Sequential<Input<27, 27, 1>, Conv2D<32, 3>, ReLU, MaxPooling2D<2, same>> {};

}  // namespace

TEST_CASE("the rule fuses only the first convolution with its ReLU and pool") {
  CHECK(layers_of_steps<First, Cpu>() == std::vector<int>{3, 1});
  CHECK(layers_of_steps<Second, Cpu>() == std::vector<int>{1, 2, 1});
  CHECK(layers_of_steps<ManyChannels, Cpu>() == std::vector<int>{2, 1});
  CHECK(layers_of_steps<OddFilters, Cpu>() == std::vector<int>{2, 1});
  CHECK(layers_of_steps<LargePool, Cpu>() == std::vector<int>{2, 1});
  CHECK(layers_of_steps<Overlapping, Cpu>() == std::vector<int>{2, 1});
  CHECK(layers_of_steps<CutWindows, Cpu>() == std::vector<int>{2, 1});
}
