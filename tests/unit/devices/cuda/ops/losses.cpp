/// \file
#include "lockstep/losses/losses.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <vector>

#include "support/exact_losses.hpp"
#include "support/run_loss.hpp"
#include "support/run_metric.hpp"
#include "unit/devices/cuda/compare.hpp"

using namespace lockstep;
using namespace testing;

namespace {

enum class Values { real, shares };

/// `n` rows of `size` numbers; probabilities are positive and sum to 1.
std::vector<float> rows(std::size_t n, std::size_t size, std::uint64_t key, Values kind) {
  auto values = normal_values(n * size, key);
  if (kind == Values::shares)
    for (std::size_t r = 0; r < n; ++r) {
      double sum = 0;
      for (std::size_t k = 0; k < size; ++k)
        sum += values[r * size + k] = std::exp(values[r * size + k]);
      for (std::size_t k = 0; k < size; ++k) values[r * size + k] /= sum;
    }
  return as<float>(values);
}

/// Sum and gradient of a loss, with and without sample weights, compared with Reference<double>.
template <class Target, class Op>
void check_loss(const Op& op, std::size_t count, const std::vector<float>& p,
                const std::vector<Target>& t) {
  using Wide = Reference<double>;
  INFO("examples " << count << " of " << op.size());
  const auto wide = as<target_as<typename Op::target_type, double>>(t);
  for (const bool weighted : {false, true}) {
    std::vector<float> w;
    for (std::size_t i = 0; weighted && i < count; ++i)
      w.push_back(static_cast<float>(i % 5) * 0.25f);
    const auto expected =
        run_loss<Wide>(op, count, as<double>(p), wide, 1.0 / 8, {}, as<double>(w));
    const auto result = run_loss<Cuda>(op, count, p, t, 1.0 / 8, {}, w);
    CHECK(std::abs(result.sum - expected.sum) <= 1e-5 * std::abs(expected.sum));
    if (count > 0) CHECK(relative_error(result.gradient, expected.gradient) < tolerance);
  }
}

template <class L>
void check_values(const L& loss, Values prediction, Values target) {
  for (const std::size_t size : std::initializer_list<std::size_t>{3, 40})
    for (const std::size_t count : std::initializer_list<std::size_t>{0, 1, 70}) {
      const auto p = rows(count, size, 11, prediction), t = rows(count, size, 12, target);
      check_loss(loss.op(shape(static_cast<int>(size))), count, p, t);
    }
}

std::vector<std::int32_t> labels(std::size_t count, int classes) {
  std::vector<std::int32_t> all;
  Philox g(3);
  for (std::size_t i = 0; i < count; ++i) all.push_back(between(g, 0, classes - 1));
  return all;
}

}  // namespace

TEST_CASE("cross-entropy of labels agrees with the reference") {
  TestGpu gpu;
  for (const int classes : {1, 10, 1000})
    for (const std::size_t count : std::initializer_list<std::size_t>{0, 1, 64, 301}) {
      if (count > 64 && classes == 1000) continue;
      const auto size = static_cast<std::size_t>(classes);
      const auto t = labels(count, classes);
      check_loss(SparseCategoricalCrossentropy{.from_logits = true}.op(shape(classes)), count,
                 rows(count, size, 7, Values::real), t);
      if (classes > 1)
        check_loss(SparseCategoricalCrossentropy{}.op(shape(classes)), count,
                   rows(count, size, 8, Values::shares), t);
    }
}

TEST_CASE("more rows than a grid has warps are added correctly") {
  TestGpu gpu;
  constexpr std::size_t count = 8 * 1024 + 77;
  const auto op = SparseCategoricalCrossentropy{.from_logits = true}.op(shape(2));
  const auto p = rows(count, 2, 5, Values::real);
  const auto t = labels(count, 2);
  const double expected = run_loss<Reference<double>>(op, count, as<double>(p), t, 1).sum;
  CHECK(std::abs(run_loss<Cuda>(op, count, p, t, 1).sum - expected) <= 1e-6 * expected);
}

TEST_CASE("large logits do not overflow, clipped probabilities have no gradient") {
  TestGpu gpu;
  const auto logits = SparseCategoricalCrossentropy{.from_logits = true}.op(shape(2));
  CHECK(run_loss<Cuda>(logits, 1, {1e4f, -1e4f}, {0}, 1).sum == 0);
  CHECK(run_loss<Cuda>(logits, 1, {1e4f, -1e4f}, {1}, 1).sum == 2e4);
  constexpr float none = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(run_loss<Cuda>(logits, 1, {none, 0}, {1}, 1).sum));
  const auto op = SparseCategoricalCrossentropy{}.op(shape(3));
  check_loss(op, 1, {0, 0.5f, 1}, std::vector<std::int32_t>{0});
  check_loss(CategoricalCrossentropy{}.op(shape(3)), 1, {0, 0.5f, 0.5f},
             std::vector<float>{0.2f, 0.3f, 0.5f});
}

TEST_CASE("losses over rows agree with the reference") {
  TestGpu gpu;
  check_values(CategoricalCrossentropy{.from_logits = true}, Values::real, Values::shares);
  check_values(CategoricalCrossentropy{.from_logits = true, .label_smoothing = 0.1}, Values::real,
               Values::shares);
  check_values(CategoricalCrossentropy{.label_smoothing = 0.2}, Values::shares, Values::shares);
  check_values(KLDivergence{}, Values::shares, Values::shares);
  check_values(CosineSimilarity{}, Values::real, Values::real);
}

TEST_CASE("losses over elements agree with the reference") {
  TestGpu gpu;
  check_values(MeanSquaredError{}, Values::real, Values::real);
  check_values(MeanAbsoluteError{}, Values::real, Values::real);
  check_values(Huber{.delta = 0.5}, Values::real, Values::real);
  check_values(LogCosh{}, Values::real, Values::real);
  check_values(Poisson{}, Values::shares, Values::shares);
  check_values(Hinge{}, Values::real, Values::real);
  check_values(BinaryCrossentropy{.from_logits = true}, Values::real, Values::shares);
  check_values(BinaryCrossentropy{.label_smoothing = 0.1}, Values::shares, Values::shares);
}

TEST_CASE("the mean of a loss is a metric on the GPU too") {
  TestGpu gpu;
  const auto p = rows(30, 7, 1, Values::real), t = rows(30, 7, 2, Values::real);
  const auto w = as<float>(normal_values(30, 9));
  const auto compare = [&](const auto& metric, const std::vector<float>& weight) {
    const auto expected = run_metric<Reference<double>, float>(
        metric, shape(7), as<double>(p), as<double>(t), 13, as<double>(weight));
    CHECK(relative_error(run_metric<Cuda, float>(metric, shape(7), p, t, 13, weight), expected) <
          tolerance);
  };
  compare(MeanOf<Huber>{}, {});
  compare(MeanOf<Huber>{}, w);
  compare(MeanOf<CategoricalCrossentropy>{{.from_logits = true}}, {});
  compare(MeanOf<CategoricalCrossentropy>{{.from_logits = true}}, w);
}

TEST_CASE("losses and metrics are accurate from the smallest to the largest numbers") {
  TestGpu gpu;
  losses_are_exact<Cuda>(1e-6, true);
  rows_are_exact<Cuda>(1e-6);
}
