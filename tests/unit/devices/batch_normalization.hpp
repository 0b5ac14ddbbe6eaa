/// \file
/// BatchNormalization test cases for every device. `Tested` comes from the device's compare.hpp,
/// which must be included first.
#pragma once

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <vector>

#include "lockstep/layers/normalization/batch_normalization.hpp"
#include "lockstep/reference.hpp"
#include "support/kernel_numbers.hpp"
#include "unit/devices/synchronized.hpp"

using namespace lockstep;
using namespace testing;

namespace {

BatchNormalizationOp generated(Philox& g) {
  const int channels = one_of(g, 1, 2, 3, 7, 8, 9, 16, 24, 31, 32, 64, 67);
  const Shape in = one_of(g, 0, 1) == 0 ? shape(channels)
                                        : shape(between(g, 1, 20), between(g, 1, 20), channels);
  return {.in = in,
          .momentum = 0.9,
          .epsilon = 1e-3f,
          .center = one_of(g, 0, 1) == 0,
          .scale = one_of(g, 0, 1) == 0};
}

void check_statistics(const LayerResult<float>& a, const LayerResult<double>& b) {
  CHECK(relative_error(a.y, b.y) < tolerance);
  CHECK(relative_error(a.dx, b.dx) < tolerance);
  CHECK(relative_error(a.dw, b.dw) < tolerance);
  CHECK(relative_error(a.state, b.state) < 1e-6);
}

}  // namespace

TEST_CASE("batch normalization of generated shapes agrees with the reference") {
  [[maybe_unused]] Tested::Machine machine;
  Philox g(11);
  for (int i = 0; i < Tested::shapes; ++i) {
    const BatchNormalizationOp op = generated(g);
    // With few rows, y is almost beta, and the gradients are mostly rounding error.
    const auto count = static_cast<std::size_t>(between(g, 8, 40));
    const std::size_t weights = op.channels() * (std::size_t(op.center) + std::size_t(op.scale));
    INFO(to_string(op.in) << ", examples " << count << ", center " << op.center << ", scale "
                          << op.scale);
    auto n = numbers(op, op.in.size(), weights, count, 2);
    for (std::size_t k = 0; k < n.x.size(); ++k) n.x[k] += static_cast<float>(k % op.channels());
    std::vector<float> state(2 * op.channels(), 0.5f);
    for (const bool training : {true, false}) {
      INFO("training " << training);
      const auto expected = run_layer<Reference<double>>(
          op, count, as<double>(n.x), as<double>(n.w), as<double>(n.dy),
          {.training = training, .state = as<double>(state)});
      for (const Tested::Device& device : Tested::devices()) {
        const auto result = run_layer<Tested::Device>(
            op, count, n.x, n.w, n.dy, {.training = training, .state = state}, device);
        check_statistics(result, expected);
        if (!training) CHECK(result.state == state);
      }
    }
  }
}

TEST_CASE("the gradients of gamma and beta need neither dx nor examples") {
  [[maybe_unused]] Tested::Machine machine;
  constexpr auto op = BatchNormalization<>::op(shape(3, 5));
  const auto n = numbers(op, 15, 10, 4);
  const std::vector<float> state(10, 0.5f);
  const auto with = run_layer<Tested::Device>(op, 4, n.x, n.w, n.dy, {.state = state});
  const auto without =
      run_layer<Tested::Device>(op, 4, n.x, n.w, n.dy, {.want_dx = false, .state = state});
  CHECK(with.dw == without.dw);
  const auto none = run_layer<Tested::Device>(op, 0, {}, n.w, {}, {.state = state});
  CHECK(none.dw == std::vector<float>(10));
  CHECK(none.state == state);
}

TEST_CASE("batch normalization keeps a variance that is small relative to the mean") {
  [[maybe_unused]] Tested::Machine machine;
  constexpr BatchNormalizationOp op{.in = shape(50, 50, 3), .momentum = 0};
  auto x = normal_values(8 * op.in.size(), 1);
  for (double& v : x) v += 1000;
  const std::vector<double> w{1, 1, 1, 0, 0, 0}, state(6);
  for (const double first : {x[0], -1e6}) {  // -1e6: the first row is a poor estimate of the mean
    x[0] = first;
    const auto n = as<float>(x), dy = as<float>(normal_values(x.size(), 2));
    const auto expected =
        run_layer<Reference<double>>(op, 8, as<double>(n), w, as<double>(dy), {.state = state});
    const auto result =
        run_layer<Tested::Device>(op, 8, n, as<float>(w), dy, {.state = as<float>(state)});
    for (std::size_t k = 3; k < 6; ++k)
      CHECK(std::abs(static_cast<double>(result.state[k]) / expected.state[k] - 1) < 1e-6);
    check_statistics(result, expected);
  }
}

TEST_CASE("the variance survives a much larger mean") {
  [[maybe_unused]] Tested::Machine machine;
  // 1e6 and 1e6 + 2: mean 1e6 + 1, variance 1.
  constexpr BatchNormalizationOp op{.in = shape(1), .momentum = 0, .epsilon = 0};
  const auto run = run_layer<Tested::Device>(op, 4, {1e6f, 1e6f + 2, 1e6f, 1e6f + 2}, {1, 0},
                                             {1, 0, 0, 0}, {.state = {0, 1}});
  CHECK(run.y == std::vector<float>{-1, 1, -1, 1});
  CHECK(run.state == std::vector<float>{1e6f + 1, 1});
}

TEST_CASE("a channel of equal values is normalized to beta") {
  [[maybe_unused]] Tested::Machine machine;
  constexpr auto op = BatchNormalization<>::op(shape(37, 2));
  std::vector<float> x(5 * 37 * 2);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = i % 2 == 0 ? 0.1f : -3.3f;
  const auto run = run_layer<Tested::Device>(
      op, 5, x, {2, 3, 0.5f, -0.25f}, std::vector<float>(x.size(), 1), {.state = {0, 0, 1, 1}});
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(run.y[i] == (i % 2 == 0 ? 0.5f : -0.25f));
}

TEST_CASE("batch normalization gives equal bits for equal thread counts") {
  [[maybe_unused]] Tested::Machine machine;
  constexpr BatchNormalizationOp op{.in = shape(30, 30, 16)};
  const auto n = numbers(op, op.in.size(), 32, 10);
  const std::vector<float> state(32, 1.0f);
  for (const Tested::Device& device : Tested::devices()) {
    const auto a = run_layer<Tested::Device>(op, 10, n.x, n.w, n.dy, {.state = state}, device);
    const auto b = run_layer<Tested::Device>(op, 10, n.x, n.w, n.dy, {.state = state}, device);
    CHECK(a.y == b.y);
    CHECK(a.dx == b.dx);
    CHECK(a.dw == b.dw);
    CHECK(a.state == b.state);
  }
}

TEST_CASE("synchronized normalization over shares of a batch equals that of the whole batch") {
  [[maybe_unused]] Tested::Machine machine;
  shares_are_one_batch<Tested::Device>(1e-5, Tested::device());
}
