/// \file
/// Metrics with weights, by hand; tests/golden has Keras' values.
#include "lockstep/metrics/weighted.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "lockstep/losses/losses.hpp"
#include "lockstep/metrics/metrics.hpp"
#include "lockstep/reference.hpp"
#include "support/run_metric.hpp"

namespace ls = lockstep;

namespace {

using D = ls::Reference<double>;
using Label = std::int32_t;
using Catch::Matchers::ContainsSubstring;
using testing::metric_value;
using testing::run_metric;

template <class M, class Target>
constexpr bool weighs =
    ls::Weighs<decltype(std::declval<M>().template op<Target>(ls::shape(3))), D>;
static_assert(ls::Metric<ls::Weighted<ls::Accuracy>> && ls::Metric<ls::Weighted<ls::AUC<>>>);
static_assert(ls::is_weighted_metric<ls::Weighted<ls::Recall>> &&
              !ls::is_weighted_metric<ls::Recall>);
static_assert(weighs<ls::Accuracy, Label> && weighs<ls::TopKCategoricalAccuracy, float> &&
              weighs<ls::BinaryAccuracy, float> && weighs<ls::Precision, float> &&
              weighs<ls::Recall, float> && weighs<ls::AUC<>, float> &&
              weighs<ls::RootMeanSquaredError, float> && weighs<ls::MeanCosineSimilarity, float> &&
              weighs<ls::ConfusionMatrix<3>, Label> && weighs<ls::MeanOf<ls::Huber>, float>);
static_assert(ls::MetricOf<ls::Weighted<ls::Accuracy>, Label, ls::shape(3)> &&
              !ls::MetricOf<ls::Weighted<ls::Recall>, Label, ls::shape(3)>);

/// Four examples of three classes; the largest outputs are of classes 0, 1, 2, 2.
const std::vector<double> p{0.7, 0.2, 0.1, 0.1, 0.8, 0.1, 0.2, 0.2, 0.6, 0.3, 0.1, 0.6};
const std::vector<Label> labels{0, 2, 2, 1};

}  // namespace

TEST_CASE("weighted accuracy is the weight of correct examples over the total weight") {
  const ls::Weighted<ls::Accuracy> metric;
  const auto value = [&](const std::vector<double>& w) {
    return metric_value<D, Label>(metric, ls::shape(3), p, labels, w);
  };
  CHECK(value({1, 1, 1, 1}) == 0.5);
  CHECK(value({}) == 0.5);
  CHECK(value({3, 1, 0, 0}) == 0.75);
  CHECK(value({0, 0, 0, 0}) == 0);
  // Keras divides by any sum of weights except 0.
  CHECK(value({-1, 0.5, -1, 0}) == -2 / -1.5);
}

TEST_CASE("an example of weight 2 counts as two examples") {
  const auto twice = [](const auto& metric, auto target) {
    auto p2 = p;
    p2.insert(p2.end(), p.begin(), p.begin() + 3);
    auto t2 = target;
    const auto width = static_cast<std::ptrdiff_t>(target.size() / 4);
    t2.insert(t2.end(), target.begin(), target.begin() + width);
    using Target =
        std::conditional_t<std::same_as<decltype(target), std::vector<Label>>, Label, float>;
    const auto once = run_metric<D, Target>(metric, ls::shape(3), p, target, 2, {2, 1, 1, 1});
    CHECK(once == run_metric<D, Target>(metric, ls::shape(3), p2, t2));
    CHECK(once != run_metric<D, Target>(metric, ls::shape(3), p, target));
  };
  const std::vector<double> yes{1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0};
  twice(ls::Weighted<ls::Accuracy>{}, labels);
  twice(ls::Weighted<ls::TopKCategoricalAccuracy>{{.k = 2}}, labels);
  twice(ls::Weighted<ls::BinaryAccuracy>{}, yes);
  twice(ls::Weighted<ls::Precision>{{.threshold = 0.65}}, yes);
  twice(ls::Weighted<ls::Recall>{}, yes);
  twice(ls::Weighted<ls::AUC<>>{}, yes);
}

TEST_CASE("a weighted confusion matrix holds weights") {
  const auto matrix = run_metric<D, Label>(ls::Weighted<ls::ConfusionMatrix<3>>{}, ls::shape(3), p,
                                           labels, 3, {0.5, 4, 2, 8});
  CHECK(matrix == std::vector<double>{0.5, 0, 0, 0, 0, 8, 0, 4, 2});
}

TEST_CASE("a weighted metric has the metric's options and their checks") {
  const auto at = [](double threshold) {
    return metric_value<D, float>(ls::Weighted<ls::Precision>{{.threshold = threshold}},
                                  ls::shape(1), {0.2, 0.6, 0.9}, {0, 0, 1}, {1, 2, 3});
  };
  CHECK(at(0.5) == 0.6);
  CHECK(at(0.7) == 1);
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_WITH(ls::Weighted<ls::Precision>{{.threshold = none}}.check(),
                    ContainsSubstring("precision threshold"));
}
