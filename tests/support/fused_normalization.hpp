/// \file
/// BatchNormalization fused with ReLU, or with Add and ReLU: generated cases and checks for each
/// device. `Tested` comes from the device's compare.hpp.
#pragma once

#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/devices/fused_normalization.hpp"
#include "lockstep/layers/layers.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/training/report/summary.hpp"
#include "support/kernel_numbers.hpp"
#include "unit/layers/resnet.hpp"

namespace testing {

inline lockstep::BatchNormalizationOp generated_normalization(lockstep::Philox& g) {
  const int channels = one_of(g, 1, 3, 7, 8, 15, 16, 24, 32, 40, 64, 67);
  return {.in = one_of(g, 0, 1) == 0
                    ? lockstep::shape(channels)
                    : lockstep::shape(between(g, 1, 20), between(g, 1, 20), channels),
          .momentum = 0.9,
          .epsilon = 1e-3f,
          .center = one_of(g, 0, 1) == 0,
          .scale = one_of(g, 0, 1) == 0};
}

/// The ops in sequence, as a plan without the rule runs them.
template <class D, class O>
LayerResult<typename D::real> unfused(const O& op, std::size_t count, const Numbers& n,
                                      const std::vector<float>& state, bool training,
                                      const D& device = {}) {
  using T = typename D::real;
  const auto x = as<T>(n.x), w = as<T>(n.w), dy = as<T>(n.dy);
  const RunOptions<T> options{.training = training, .state = as<T>(state)};
  auto result = run_layer<D>(op.normalization, count, x, w, dy, options, device);
  std::vector<T> sum = result.y;
  for (std::size_t i = 0; i < n.x2.size(); ++i) sum[i] += static_cast<T>(n.x2[i]);
  const auto relu = run_layer<D>(op.relu, count, sum, {}, dy, {.training = training}, device);
  result = run_layer<D>(op.normalization, count, x, w, relu.dx, options, device);
  result.y = relu.y;
  if (!n.x2.empty()) result.dx2 = relu.dx;
  return result;
}

/// Calls check(op, count, numbers, state, training, expected) for generated cases, where `expected`
/// is the result of the ops in sequence in double.
template <class O, class Check>
void for_fused_normalizations(std::uint64_t seed, int shapes, const Check& check) {
  lockstep::Philox g(seed);
  for (int i = 0; i < shapes; ++i) {
    const lockstep::BatchNormalizationOp norm = generated_normalization(g);
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
      check(op, count, n, state, training,
            unfused<lockstep::Reference<double>>(op, count, n, state, training));
    }
  }
}

/// If the block's input is the batch itself, only the gradient of the skip branch is computed.
template <class Tested>
void fuses_without_a_wanted_gradient() {
  using D = typename Tested::Device;
  [[maybe_unused]] typename Tested::Machine machine;
  const lockstep::Shape in = lockstep::shape(5, 16);
  const lockstep::BatchNormalizationAddReLUOp op{{.in = in}, {in}, {in}};
  auto n = numbers(op, 80, 32, 9);
  n.x2 = as<float>(normal_values(n.x.size(), 5));
  const std::vector<float> state(32, 0.5f);
  const auto all = run_layer<D>(op, 9, n.x, n.w, n.dy, {.x2 = n.x2, .state = state});
  const auto some =
      run_layer<D>(op, 9, n.x, n.w, n.dy, {.want_dx = false, .x2 = n.x2, .state = state});
  CHECK(some.dx2 == all.dx2);
  CHECK(some.dw == all.dw);
}

/// The fused ReLU propagates NaN, as TensorFlow's does.
template <class Tested>
void keeps_what_is_not_a_number() {
  using D = typename Tested::Device;
  [[maybe_unused]] typename Tested::Machine machine;
  const lockstep::BatchNormalizationReLUOp op{{.in = lockstep::shape(16)}, {lockstep::shape(16)}};
  auto n = numbers(op, 16, 32, 4);
  n.x[5] = std::numeric_limits<float>::quiet_NaN();
  const auto y = run_layer<D>(op, 4, n.x, n.w, n.dy, {.state = std::vector<float>(32, 1.0f)}).y;
  for (std::size_t i = 0; i < y.size(); ++i) CHECK(std::isnan(y[i]) == (i % 16 == 5));
}

template <class Tested>
void fuses_a_residual_network() {
  struct Net : resnet::ResNet<1> {};
  const auto names = lockstep::detail::fused_names<Net, typename Tested::Device>();
  CHECK(std::count_if(names.begin(), names.end(), [](const std::string& name) {
          return name.find("+add") != std::string::npos;
        }) == 3);
  CHECK(names.size() == 7);
}

}  // namespace testing
