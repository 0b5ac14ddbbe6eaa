/// \file
#include "../compare.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "lockstep/layers/layers.hpp"
#include "lockstep/training/summary.hpp"
#include "unit/layers/resnet.hpp"

using namespace lockstep;
using namespace testing;

namespace {

BatchNormalizationOp generated(Philox& g) {
  const int channels = one_of(g, 1, 3, 7, 8, 16, 24, 32, 40, 67);
  return {.in = one_of(g, 0, 1) == 0 ? shape(channels)
                                     : shape(between(g, 1, 20), between(g, 1, 20), channels),
          .momentum = 0.9,
          .epsilon = 1e-3f,
          .center = one_of(g, 0, 1) == 0,
          .scale = one_of(g, 0, 1) == 0};
}

/// The ops one after the other, as a plan without the rule runs them.
template <class D, class O>
LayerResult<typename D::real> unfused(const O& op, std::size_t count, const Numbers& n,
                                      const std::vector<float>& state, bool training) {
  using T = typename D::real;
  const auto x = as<T>(n.x), w = as<T>(n.w), dy = as<T>(n.dy);
  const RunOptions<T> options{.training = training, .state = as<T>(state)};
  auto result = run_layer<D>(op.normalization, count, x, w, dy, options);
  std::vector<T> sum = result.y;
  for (std::size_t i = 0; i < n.x2.size(); ++i) sum[i] += static_cast<T>(n.x2[i]);
  const auto relu = run_layer<D>(op.relu, count, sum, {}, dy, {.training = training});
  result = run_layer<D>(op.normalization, count, x, w, relu.dx, options);
  result.y = relu.y;
  if (!n.x2.empty()) result.dx2 = relu.dx;
  return result;
}

template <class D, class O>
void agrees_with_the_ops(std::uint64_t seed, double allowed, double allowed_dw) {
  TestGpu gpu;
  Philox g(seed);
  for (int i = 0; i < generated_shapes; ++i) {
    const BatchNormalizationOp norm = generated(g);
    O op{};
    op.normalization = norm;
    op.relu = {norm.in};
    const auto count = static_cast<std::size_t>(between(g, 8, 40));
    const std::size_t weights =
        norm.channels() * (std::size_t(norm.center) + std::size_t(norm.scale));
    INFO(to_string(norm.in) << ", examples " << count << ", center " << norm.center << ", scale "
                            << norm.scale);
    auto n = numbers(op, norm.in.size(), weights, count, 2);
    for (std::size_t k = 0; k < n.x.size(); ++k) n.x[k] += static_cast<float>(k % norm.channels());
    if constexpr (requires { op.add; }) {
      op.add = {norm.in};
      n.x2 = rounded(as<float>(normal_values(n.x.size(), 5)));
    }
    n.x = rounded(n.x);
    n.dy = rounded(n.dy);
    const std::vector<float> state(2 * norm.channels(), 0.5f);
    for (const bool training : {true, false}) {
      INFO("training " << training);
      const auto expected = unfused<Reference<double>>(op, count, n, state, training);
      const auto result = run_layer<D>(op, count, n.x, n.w, n.dy,
                                       {.training = training, .x2 = n.x2, .state = state});
      CHECK(relative_error(result.y, expected.y) < allowed);
      CHECK(relative_error(result.state, expected.state) < 1e-6);
      CHECK(relative_error(result.dx, expected.dx) < allowed);
      CHECK(relative_error(result.dx2, expected.dx2) == 0);
      CHECK(relative_error(result.dw, expected.dw) < allowed_dw);
    }
  }
}

}  // namespace

TEST_CASE("a normalization fused with its ReLU agrees with the two ops") {
  agrees_with_the_ops<Cuda, BatchNormalizationReLUOp>(21, tolerance, tolerance);
}

TEST_CASE("a normalization fused with a sum and its ReLU agrees with the three ops") {
  agrees_with_the_ops<Cuda, BatchNormalizationAddReLUOp>(22, tolerance, tolerance);
}

TEST_CASE("normalizations fused with what follows agree with the ops also in bfloat16") {
  agrees_with_the_ops<CudaBFloat16, BatchNormalizationReLUOp>(31, half_tolerance,
                                                              half_dw_tolerance);
  agrees_with_the_ops<CudaBFloat16, BatchNormalizationAddReLUOp>(32, half_tolerance,
                                                                 half_dw_tolerance);
}

TEST_CASE("a fused normalization of a batch that nobody wants the gradient of") {
  TestGpu gpu;
  // The block's input is the batch itself: only the skip branch's gradient, or none at all.
  const BatchNormalizationAddReLUOp op{{.in = shape(5, 16)}, {shape(5, 16)}, {shape(5, 16)}};
  auto n = numbers(op, 80, 32, 9);
  n.x2 = as<float>(normal_values(n.x.size(), 5));
  const std::vector<float> state(32, 0.5f);
  const auto all = run_layer<Cuda>(op, 9, n.x, n.w, n.dy, {.x2 = n.x2, .state = state});
  const auto some =
      run_layer<Cuda>(op, 9, n.x, n.w, n.dy, {.want_dx = false, .x2 = n.x2, .state = state});
  CHECK(some.dx2 == all.dx2);
  CHECK(some.dw == all.dw);
}

TEST_CASE("a fused normalization keeps what is not a number, as TensorFlow's ReLU does") {
  TestGpu gpu;
  const BatchNormalizationReLUOp op{{.in = shape(16)}, {shape(16)}};
  auto n = numbers(op, 16, 32, 4);
  n.x[5] = std::numeric_limits<float>::quiet_NaN();
  const auto y = run_layer<Cuda>(op, 4, n.x, n.w, n.dy, {.state = std::vector<float>(32, 1.0f)}).y;
  for (std::size_t i = 0; i < y.size(); ++i) CHECK(std::isnan(y[i]) == (i % 16 == 5));
}

TEST_CASE("a residual network's plan fuses its normalizations") {
  struct Net : resnet::ResNet<1> {};
  const auto names = lockstep::detail::fused_names<Net, Cuda>();
  CHECK(std::count_if(names.begin(), names.end(), [](const std::string& name) {
          return name.find("+add") != std::string::npos;
        }) == 3);
  CHECK(names.size() == 7);
}
