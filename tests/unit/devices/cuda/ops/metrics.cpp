/// \file
#include "lockstep/metrics/metrics.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <vector>

#include "support/run_metric.hpp"
#include "unit/devices/cuda/compare.hpp"

using namespace lockstep;
using namespace testing;

namespace {

constexpr float none = std::numeric_limits<float>::quiet_NaN();

/// Predictions with many ties and some NaN.
std::vector<float> predictions(std::size_t n, std::uint64_t key) {
  Philox g(key);
  std::vector<float> values;
  for (std::size_t i = 0; i < n; ++i)
    values.push_back(g.below(40) == 0 ? none : static_cast<float>(between(g, 0, 20)) * 0.05f);
  return values;
}

/// The state of a metric after all rows and in parts, with and without weights, compared with
/// Reference<float>, which makes the same decisions. The weights make sums exact.
template <class Target, class M>
void check_metric(const M& metric, int size, std::size_t count, bool exact = true) {
  const auto out = shape(size);
  const auto op = metric.template op<Target>(out);
  INFO("examples " << count << " of " << size);
  auto p = predictions(count * op.size(), 3);
  if (!exact) p = as<float>(normal_values(p.size(), 4));
  std::vector<target_as<Target, float>> t;
  Philox g(5);
  for (std::size_t i = 0; i < count * op.target_size(); ++i)
    t.push_back(static_cast<target_as<Target, float>>(between(g, 0, size > 1 ? size - 1 : 1)));
  std::vector<float> w;
  for (std::size_t i = 0; i < count; ++i) w.push_back(static_cast<float>(between(g, 0, 8)) * 0.25f);
  for (const auto& weight : {std::vector<float>{}, w})
    for (const std::size_t part : std::initializer_list<std::size_t>{count + 1, std::size_t{17}}) {
      const auto expected = run_metric<Reference<float>, Target>(metric, out, p, t, part, weight);
      const auto result = run_metric<Cuda, Target>(metric, out, p, t, part, weight);
      if (exact)
        CHECK(result == expected);
      else
        CHECK(relative_error(result, expected) < tolerance);
    }
}

}  // namespace

TEST_CASE("accuracies on the GPU equal the reference's") {
  TestGpu gpu;
  for (const std::size_t count : std::initializer_list<std::size_t>{1, 40}) {
    check_metric<std::int32_t>(Accuracy{}, 1, count);
    check_metric<std::int32_t>(Accuracy{}, 10, count);
    check_metric<std::int32_t>(Accuracy{}, 70, count);
    check_metric<float>(Accuracy{}, 1, count);
    check_metric<float>(Accuracy{}, 10, count);
    check_metric<std::int32_t>(TopKCategoricalAccuracy{.k = 3}, 10, count);
    check_metric<float>(TopKCategoricalAccuracy{.k = 50}, 70, count);
    check_metric<float>(TopKCategoricalAccuracy{.k = 5}, 3, count);
  }
}

TEST_CASE("binary counts on the GPU equal the reference's") {
  TestGpu gpu;
  check_metric<std::int32_t>(Precision{}, 1, 40);
  check_metric<float>(Recall{.threshold = 0.3}, 7, 40);
  check_metric<float>(BinaryAccuracy{.threshold = -1}, 40, 9);
  check_metric<float>(BinaryAccuracy{.threshold = 0.3}, 2, 40);
  check_metric<std::int32_t>(BinaryAccuracy{}, 1, 40);
}

TEST_CASE("means of squares and of cosines on the GPU agree with the reference") {
  TestGpu gpu;
  check_metric<float>(RootMeanSquaredError{}, 1, 40, false);
  check_metric<float>(RootMeanSquaredError{}, 100, 40, false);
  check_metric<float>(MeanCosineSimilarity{}, 5, 40, false);
  check_metric<float>(MeanCosineSimilarity{}, 100, 7, false);
}

TEST_CASE("histograms on the GPU equal the reference's") {
  TestGpu gpu;
  check_metric<std::int32_t>(AUC<>{}, 1, 300);
  check_metric<float>(AUC<11>{}, 5, 300);
  check_metric<std::int32_t>(ConfusionMatrix<10>{}, 10, 300);
  check_metric<float>(ConfusionMatrix<3>{}, 3, 20);
}

TEST_CASE("a weighted histogram equals the reference bit by bit, in one part or several") {
  TestGpu gpu;
  constexpr std::size_t count = 1500;
  const auto p = predictions(count, 11), w = as<float>(normal_values(count, 12));
  std::vector<float> t;
  for (std::size_t i = 0; i < count; ++i) t.push_back(static_cast<float>(i % 3 == 0));
  const AUC<11> metric;
  const auto expected =
      run_metric<Reference<float>, float>(metric, shape(1), p, t, count, w);  // adds in double
  for (const std::size_t part : {count, std::size_t{700}})
    CHECK(run_metric<Cuda, float>(metric, shape(1), p, t, part, w) == expected);
}

TEST_CASE("a histogram of logits on the GPU is that of their sigmoids") {
  TestGpu gpu;
  // Not at a threshold, where rounding decides.
  const std::vector<float> p{-3, -0.4f, 0.2f, 5}, t{0, 1, 0, 1};
  const AUC<4> metric{.from_logits = true};
  CHECK(run_metric<Cuda, float>(metric, shape(2), p, t) ==
        run_metric<Reference<double>, float>(metric, shape(2), as<double>(p), as<double>(t)));
}
