/// \file
/// Convolution, ReLU and max pooling in one pass, compared with the three separate ops.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/layers/layers.hpp"
#include "support/convolutions.hpp"
#include "support/pooled_convolutions.hpp"
#include "unit/devices/cuda/compare.hpp"
#include "unit/model/toy_device.hpp"

using namespace lockstep;
using namespace testing;

namespace {

/// A convolution and a pool to which the rule applies.
ConvReLUPoolOp generated(Philox& g) {
  for (;;) {
    Conv2DOp conv = generated_convolution(g);
    conv.in =
        shape(conv.in[0] + between(g, 0, 30), conv.in[1] + between(g, 0, 30), between(g, 1, 4));
    conv.filters = one_of(g, 1, 3, 16, 32, 40, 64);
    const KernelSize pool{between(g, 1, 3), between(g, 1, 3)};
    const ConvReLUPoolOp op = pooled(
        conv, pool, {pool.height + one_of(g, 0, 0, 0, 1), pool.width + one_of(g, 0, 0, 0, 2)});
    if (op.pool.window.rows().fits() && op.pool.window.columns().fits() &&
        ConvReLUPoolOp::fits(op.conv, op.relu, op.pool) && Kernel<ConvReLUPoolOp, Cuda>::fits(op))
      return op;
  }
}

std::string name_of(const ConvReLUPoolOp& op, std::size_t count) {
  const auto& w = op.pool.window;
  return std::to_string(count) + " x " + describe(op.conv) + ", pool " +
         std::to_string(w.pool.height) + "x" + std::to_string(w.pool.width) + ", strides " +
         std::to_string(w.strides.height) + "x" + std::to_string(w.strides.width);
}

template <class D>
void agrees(const ConvReLUPoolOp& op, std::size_t count, double allowed, double allowed_dw) {
  INFO(name_of(op, count));
  Numbers n = numbers(op, op.conv.in.size(), weights_of(op.conv), count);
  make_coarse(n);
  for (auto* values : {&n.x, &n.dy}) *values = rounded<ActivationOf<D>>(*values);
  TestGpu gpu;
  const auto expected = one_by_one(op, count, n);
  const auto result = run<D>(op, count, n, {}, false);
  CHECK(relative_error(result.y, expected.y) < allowed);
  CHECK(relative_error(result.dw, expected.dw) < allowed_dw);
}

template <class D>
void generated_agree(std::uint64_t seed, double allowed, double allowed_dw) {
  Philox g(seed);
  for (int i = 0; i < 2 * generated_shapes; ++i) {
    const ConvReLUPoolOp op = generated(g);
    agrees<D>(op, static_cast<std::size_t>(between(g, 0, 4)), allowed, allowed_dw);
  }
}

}  // namespace

TEST_CASE("convolution, ReLU and max pooling in one pass agree with the three ops in double") {
  generated_agree<Cuda>(21, tolerance, tolerance);
}

TEST_CASE("the largest filters and windows of a pooled convolution agree with the three ops") {
  agrees<Cuda>(pooled(Conv2D<8, 7>::op(shape(22, 22, 1)), {4, 4}, {4, 4}), 3, tolerance, tolerance);
}

TEST_CASE("a pooled convolution agrees with the three ops in 16-bit types too", "[.slow]") {
  generated_agree<CudaBFloat16>(22, half_tolerance, half_dw_tolerance);
  generated_agree<CudaFloat16>(23, float16_tolerance, half_dw_tolerance);
}

TEST_CASE("the tutorials' first layers agree with the three ops for every batch size") {
  const auto mnist = pooled(Conv2D<32, 3>::op(shape(28, 28, 1)));
  for (const std::size_t count : {1u, 33u}) {
    agrees<Cuda>(mnist, count, tolerance, tolerance);
    agrees<CudaBFloat16>(mnist, count, half_tolerance, half_dw_tolerance);
  }
  agrees<Cuda>(pooled(Conv2D<32, 3, same>::op(shape(32, 32, 3))), 5, tolerance, tolerance);
  // More blocks than are added up at once, and images of more than one tile.
  agrees<Cuda>(pooled(Conv2D<4, 3>::op(shape(6, 6, 1))), 700, tolerance, tolerance);
  agrees<Cuda>(pooled(Conv2D<5, 5>::op(shape(40, 600, 1))), 2, tolerance, tolerance);
}

TEST_CASE("ties go to the first maximum, and only a positive one wins") {
  Philox g(24);
  TestGpu gpu;
  for (int i = 0; i < generated_shapes; ++i) {
    const ConvReLUPoolOp op = generated(g);
    INFO(name_of(op, 3));
    Numbers n = numbers(op, op.conv.in.size(), weights_of(op.conv), 3);
    // Small integers: many ties, and exact sums.
    for (auto* values : {&n.x, &n.w, &n.dy})
      for (float& v : *values) v = std::round(v);
    const auto expected = one_by_one(op, 3, n);
    const auto result = run<Cuda>(op, 3, n, {}, false);
    CHECK(as<double>(result.y) == expected.y);
    CHECK(as<double>(result.dw) == expected.dw);
  }
}

TEST_CASE("a pooled convolution without examples has no gradient") {
  TestGpu gpu;
  const ConvReLUPoolOp op = pooled(Conv2D<32, 3>::op(shape(8, 8, 1)));
  const Numbers n = numbers(op, op.conv.in.size(), weights_of(op.conv), 0);
  CHECK(run<Cuda>(op, 0, n, {}, false).dw == std::vector<float>(n.w.size(), 0.0f));
}

TEST_CASE("NaN passes through a pooled convolution as through the three ops") {
  TestGpu gpu;
  if (gpu.host() == nullptr) SKIP("NVIDIA's libraries have other rules");
  const ConvReLUPoolOp op = pooled(Conv2D<8, 2>::op(shape(9, 9, 1)));
  Numbers n = numbers(op, 81, weights_of(op.conv), 2);
  // In one window the first element wins, in others a later one.
  n.x[20] = n.x[81 + 40] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> no_dy(2 * op.conv.out().size());
  const auto conv =
      run<Cuda>(ConvReLUOp{op.conv, op.relu}, 2, Numbers{n.x, n.w, no_dy, {}}, {}, false).y;
  const auto pool = run<Cuda>(op.pool, 2, Numbers{conv, {}, n.dy, {}}).y;
  const auto y = run<Cuda>(op, 2, n, {}, false).y;
  std::size_t nans = 0;
  REQUIRE(y.size() == pool.size());
  for (std::size_t i = 0; i < y.size(); ++i) {
    CHECK(std::isnan(y[i]) == std::isnan(pool[i]));
    if (std::isnan(y[i]))
      ++nans;
    else
      CHECK(std::abs(y[i] - pool[i]) < 1e-5f);
  }
  CHECK(nans > 0);
}

TEST_CASE("the gradient of a pooled convolution is the slope of its result") {
  // Few weights, far from ties: finite differences of the loss sum(dy y), which is linear there.
  const ConvReLUPoolOp op = pooled(Conv2D<3, 2>::op(shape(7, 6, 2)));
  Numbers n = numbers(op, op.conv.in.size(), weights_of(op.conv), 4);
  TestGpu gpu;
  const auto gradient = run<Cuda>(op, 4, n, {}, false).dw;
  const double step = 1e-3;
  for (std::size_t i = 0; i < n.w.size(); ++i) {
    const auto loss = [&](double change) {
      Numbers moved = n;
      moved.w[i] = static_cast<float>(moved.w[i] + change);
      const auto y = run<Cuda>(op, 4, moved, {}, false).y;
      double sum = 0;
      for (std::size_t k = 0; k < y.size(); ++k)
        sum += static_cast<double>(y[k]) * static_cast<double>(n.dy[k]);
      return sum;
    };
    const double slope = (loss(step) - loss(-step)) / (2 * step);
    INFO("weight " << i);
    CHECK(std::abs(slope - static_cast<double>(gradient[i])) < 2e-2 * (1 + std::abs(slope)));
  }
}

namespace {

struct First
    : Sequential<Input<28, 28, 1>, Conv2D<32, 3>, ReLU, MaxPooling2D<>, Flatten, Dense<10>> {};
struct OddFilters
    : Sequential<Input<28, 28, 1>, Conv2D<20, 3, relu>, MaxPooling2D<3>, Flatten, Dense<10>> {};
struct Second
    : Sequential<Input<28, 28, 4>, Dropout<rate(0.5f)>, Conv2D<32, 3>, ReLU, MaxPooling2D<>> {};
struct ManyChannels : Sequential<Input<28, 28, 5>, Conv2D<32, 3>, ReLU, MaxPooling2D<>> {};
struct LargeKernel : Sequential<Input<28, 28, 4>, Conv2D<32, 5>, ReLU, MaxPooling2D<>> {};
struct LargeWindow : Sequential<Input<28, 28, 1>, Conv2D<32, 3>, ReLU, MaxPooling2D<5>> {};
struct FarApart : Sequential<Input<80, 80, 4>, Conv2D<8, 3, dilation(16)>, ReLU, MaxPooling2D<4>> {
};
struct Overlapping
    : Sequential<Input<28, 28, 1>, Conv2D<32, 3>, ReLU, MaxPooling2D<3, strides(2)>> {};
struct CutWindows : Sequential<Input<27, 27, 1>, Conv2D<32, 3>, ReLU, MaxPooling2D<2, same>> {};

}  // namespace

TEST_CASE("the rule fuses the first convolution with its ReLU and pool, and no others") {
  CHECK(layers_of_steps<First, Cuda>() == std::vector<int>{3, 1});
  CHECK(layers_of_steps<First, CudaBFloat16>() == std::vector<int>{3, 1});
  CHECK(layers_of_steps<OddFilters, Cuda>() == std::vector<int>{3, 1});
  CHECK(layers_of_steps<Second, Cuda>() == std::vector<int>{1, 2, 1});
  CHECK(layers_of_steps<ManyChannels, Cuda>() == std::vector<int>{2, 1});
  CHECK(layers_of_steps<LargeKernel, Cuda>() == std::vector<int>{2, 1});
  CHECK(layers_of_steps<LargeWindow, Cuda>() == std::vector<int>{2, 1});
  CHECK(layers_of_steps<FarApart, Cuda>() == std::vector<int>{2, 1});
  CHECK(layers_of_steps<Overlapping, Cuda>() == std::vector<int>{2, 1});
  CHECK(layers_of_steps<CutWindows, Cuda>() == std::vector<int>{2, 1});
}

TEST_CASE("a network that begins with a pooled convolution agrees with the reference") {
  TestGpu gpu;
  toy::Machine<OddFilters, Reference<double>> expected(3);
  toy::Machine<OddFilters, Cuda> machine(3);
  CHECK(relative_error(machine.forward(), expected.forward()) < tolerance);
  CHECK(relative_error(machine.gradients(), expected.gradients()) < 2 * tolerance);
}
