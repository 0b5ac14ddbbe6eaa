/// \file
/// Each metric against its definition, by hand or by a slow computation that shares nothing with
/// it.
#include "lockstep/metrics/metrics.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/losses/losses.hpp"
#include "lockstep/reference.hpp"
#include "support/run_metric.hpp"

namespace ls = lockstep;

namespace {

using D = ls::Reference<double>;
using testing::metric_value;
using Label = std::int32_t;
constexpr double none = std::numeric_limits<double>::quiet_NaN();

bool near(double a, double b) { return std::abs(a - b) <= 1e-12 * std::max(1.0, std::abs(b)); }

static_assert(ls::Metric<ls::Precision> && ls::Metric<ls::Recall> &&
              ls::Metric<ls::BinaryAccuracy> && ls::Metric<ls::TopKCategoricalAccuracy> &&
              ls::Metric<ls::RootMeanSquaredError> && ls::Metric<ls::AUC<>> &&
              ls::Metric<ls::ConfusionMatrix<3>> && ls::Metric<ls::MeanOf<ls::Huber>> &&
              ls::Metric<ls::MeanCosineSimilarity>);

/// Random probabilities, and targets that correlate with them.
struct Answers {
  std::vector<double> p, t;
  explicit Answers(std::size_t n, std::uint64_t seed) {
    ls::Philox g(seed);
    for (std::size_t i = 0; i < n; ++i) {
      const bool yes = g.uniform() < 0.4;
      t.push_back(yes ? 1 : 0);
      p.push_back(1 / (1 + std::exp(-g.normal() - (yes ? 1 : 0))));
    }
  }
};

/// Keras' AUC by its definition: the counts for each threshold separately, then the sum.
double slow_auc(const Answers& a, std::size_t n, ls::Curve curve) {
  std::vector<double> tp(n), fp(n), fn(n), tn(n);
  for (std::size_t i = 0; i < n; ++i) {
    double threshold = static_cast<double>(i) / static_cast<double>(n - 1);
    if (i == 0) threshold = -1e-7;
    if (i == n - 1) threshold = 1 + 1e-7;
    for (std::size_t k = 0; k < a.p.size(); ++k)
      ((a.p[k] > threshold) ? (a.t[k] != 0 ? tp : fp) : (a.t[k] != 0 ? fn : tn))[i] += 1;
  }
  double area = 0;
  for (std::size_t i = 0; i + 1 < n; ++i) {
    if (curve == ls::Curve::roc) {
      const auto x = [&](std::size_t k) { return fp[k] / (fp[k] + tn[k]); };
      const auto y = [&](std::size_t k) { return tp[k] / (tp[k] + fn[k]); };
      area += (x(i) - x(i + 1)) * (y(i) + y(i + 1)) / 2;
    } else {
      const double dtp = tp[i] - tp[i + 1], p0 = tp[i] + fp[i], p1 = tp[i + 1] + fp[i + 1];
      const double slope = p0 - p1 > 0 ? dtp / (p0 - p1) : 0;
      const double intercept = tp[i + 1] - slope * p1;
      const double ratio = p0 > 0 && p1 > 0 ? p0 / p1 : 1;
      area += slope * (dtp + intercept * std::log(ratio)) / (tp[i + 1] + fn[i + 1]);
    }
  }
  return area;
}

}  // namespace

TEST_CASE("precision, recall and binary accuracy count what is above the threshold") {
  // true positive, false positive, false negative, true negative; at the threshold: negative
  const std::vector<double> p{0.9, 0.8, 0.7, 0.2, 0.1, 0.5}, t{1, 1, 0, 1, 0, 0};
  const auto value = [&](const auto& metric) {
    return metric_value<D, float>(metric, ls::shape(2), p, t);
  };
  CHECK(near(value(ls::Precision{}), 2.0 / 3));
  CHECK(near(value(ls::Recall{}), 2.0 / 3));
  CHECK(near(value(ls::BinaryAccuracy{}), 4.0 / 6));
  CHECK(near(value(ls::Precision{.threshold = 0.85}), 1));
  CHECK(near(value(ls::Recall{.threshold = 0.85}), 1.0 / 3));
  CHECK(near(value(ls::Recall{.threshold = 0}), 1));
  CHECK(near(value(ls::BinaryAccuracy{.threshold = 0.75}), 5.0 / 6));
}

TEST_CASE("binary accuracy compares targets for equality, as Keras does") {
  // mean(equal(t, p > 0.5)): the fourth and the fifth are correct
  const std::vector<double> p{0.9, 0.1, 0.9, 0.9, 0.1, 0.1}, t{0.5, 0.5, 2, 1, 0, -1};
  CHECK(near(metric_value<D, float>(ls::BinaryAccuracy{}, ls::shape(2), p, t), 2.0 / 6));
  CHECK(metric_value<D, Label>(ls::BinaryAccuracy{}, ls::shape(1), {0.9, 0.9}, {1, 2}) == 0.5);
}

TEST_CASE("binary metrics accept labels for one output") {
  const std::vector<double> p{0.9, 0.8, 0.2, 0.1};
  CHECK(metric_value<D, Label>(ls::Precision{}, ls::shape(1), p, {1, 0, 1, 0}) == 0.5);
  CHECK(metric_value<D, Label>(ls::AUC<>{}, ls::shape(1), p, {1, 1, 0, 0}) == 1);
  STATIC_CHECK(ls::Precision::accepts<Label>(ls::shape(1)));
  STATIC_CHECK(!ls::Precision::accepts<Label>(ls::shape(2)));
  STATIC_CHECK(ls::Recall::accepts<float>(ls::shape(2, 2)));
}

TEST_CASE("a metric without examples is 0") {
  const std::vector<double> empty(400);
  CHECK(ls::Precision{}.result(empty.data()) == 0);
  CHECK(ls::Recall{}.result(empty.data()) == 0);
  CHECK(ls::BinaryAccuracy{}.result(empty.data()) == 0);
  CHECK(ls::TopKCategoricalAccuracy{}.result(empty.data()) == 0);
  CHECK(ls::RootMeanSquaredError{}.result(empty.data()) == 0);
  CHECK(ls::MeanOf<ls::Huber>{}.result(empty.data()) == 0);
  CHECK(ls::ConfusionMatrix<3>{}.result(empty.data()) == 0);
  CHECK(ls::AUC<>{}.result(empty.data()) == 0);
  CHECK(ls::AUC<>{.curve = ls::Curve::pr}.result(empty.data()) == 0);
}

TEST_CASE("top k finds the class among the k largest, ties included, NaN never") {
  const std::vector<double> p{5, 4, 3, 2, 1};
  const auto found = [&](std::size_t k, Label label) {
    return metric_value<D, Label>(ls::TopKCategoricalAccuracy{.k = k}, ls::shape(5), p, {label});
  };
  CHECK(found(1, 0) == 1);
  CHECK(found(1, 1) == 0);
  CHECK(found(3, 2) == 1);
  CHECK(found(3, 3) == 0);
  CHECK(found(9, 4) == 1);
  const ls::TopKCategoricalAccuracy two{.k = 2};
  CHECK(metric_value<D, Label>(two, ls::shape(4), {9, 7, 7, 7}, {3}) == 1);
  CHECK(metric_value<D, float>(two, ls::shape(3), {1, 2, 3}, {0.1, 0.8, 0.1}) == 1);
  CHECK(metric_value<D, float>(two, ls::shape(3), {1, 2, 3}, {0.8, 0.1, 0.1}) == 0);
  CHECK(metric_value<D, Label>(two, ls::shape(3), {1, none, 3}, {1}) == 0);
  CHECK(metric_value<D, Label>(two, ls::shape(3), {none, 2, 1}, {1}) == 0);
  CHECK(metric_value<D, Label>(ls::TopKCategoricalAccuracy{.k = 9}, ls::shape(3), {1, 2, none},
                               {1}) == 0);
}

TEST_CASE("a NaN output makes means NaN, and is above no threshold and no number") {
  const ls::Shape two = ls::shape(2);
  for (const std::vector<double>& p : {std::vector<double>{none, 0.2}, {0.2, none}}) {
    CHECK(std::isnan(metric_value<D, float>(ls::RootMeanSquaredError{}, two, p, {0, 1})));
    CHECK(std::isnan(metric_value<D, float>(ls::MeanCosineSimilarity{}, two, p, {0, 1})));
    CHECK(std::isnan(metric_value<D, float>(ls::MeanOf<ls::MeanAbsoluteError>{}, two, p, {0, 1})));
    CHECK(metric_value<D, Label>(ls::Accuracy{}, two, p, {0}) == 1);
    CHECK(metric_value<D, float>(ls::Precision{}, two, p, {1, 1}) == 0);
    CHECK(metric_value<D, float>(ls::Recall{}, two, p, {1, 1}) == 0);
    CHECK(metric_value<D, float>(ls::BinaryAccuracy{}, two, p, {0, 0}) == 1);
  }
}

TEST_CASE("the area under a curve is that of Keras' thresholds") {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    const Answers a(301, seed);
    for (const auto curve : {ls::Curve::roc, ls::Curve::pr}) {
      const double whole =
          metric_value<D, float>(ls::AUC<>{.curve = curve}, ls::shape(1), a.p, a.t);
      CHECK(near(whole, slow_auc(a, 200, curve)));
      const double coarse =
          metric_value<D, float>(ls::AUC<5>{.curve = curve}, ls::shape(7), a.p, a.t);
      CHECK(near(coarse, slow_auc(a, 5, curve)));
    }
  }
}

TEST_CASE("the area under the ROC curve approaches the fraction of correctly ordered pairs") {
  const Answers a(2000, 4);
  double in_order = 0, pairs = 0;
  for (std::size_t i = 0; i < a.p.size(); ++i)
    for (std::size_t k = 0; k < a.p.size(); ++k) {
      if (a.t[i] == 0 || a.t[k] != 0) continue;
      pairs += 1;
      in_order += a.p[i] > a.p[k];
    }
  const double area = metric_value<D, float>(ls::AUC<>{}, ls::shape(1), a.p, a.t);
  CHECK(std::abs(area - in_order / pairs) < 2e-3);
}

TEST_CASE("AUC accepts probabilities of 0 and 1, logits and NaN") {
  const auto area = [](ls::AUC<> metric, std::vector<double> p) {
    return metric_value<D, float>(metric, ls::shape(1), p, {0, 0, 1, 1});
  };
  CHECK(area({}, {0, 0, 1, 1}) == 1);
  CHECK(area({}, {1, 1, 0, 0}) == 0);
  CHECK(area({}, {-5, 2, 7, 9}) == 0.75);  // as 0, 1, 1, 1
  CHECK(area({.from_logits = true}, {-5, -2, 7, 9}) == 1);
  CHECK(area({}, {none, 0, 1, 1}) == 1);
}

TEST_CASE("AUC is computed in the predictions' type, as in Keras") {
  // 0.3f is above 0.3; its product with 10 rounds to 3, so that both are between 0.2 and 0.3.
  using F = ls::Reference<float>;
  const ls::AUC<11> metric;
  const ls::Shape out = ls::shape(1);
  CHECK(metric_value<F, float>(metric, out, {0.3F, 0.25F}, {1, 0}) == 0.5);
  CHECK(metric_value<F, float>(metric, out, {0.3F, 0.15F}, {1, 0}) == 1);
  for (int k = 1; k <= 10; ++k) {
    CAPTURE(k);
    const auto state =
        testing::run_metric<F, float>(metric, out, {static_cast<float>(k) / 10}, {1});
    CHECK(state[static_cast<std::size_t>(k - 1)] == 1);
  }
  // So is the sigmoid: in float it is 1/2 for such a small logit.
  const auto half =
      testing::run_metric<F, float>(ls::AUC<11>{.from_logits = true}, out, {1e-8F}, {1});
  CHECK(half[4] == 1);
}

TEST_CASE("a confusion matrix has a row for each label and a column for each prediction") {
  const std::vector<double> p{9, 1, 0, 0, 9, 1, 0, 1, 9, 0, 9, 1};
  const std::vector<double> matrix{1, 0, 0, 0, 1, 0, 0, 1, 1};
  const ls::ConfusionMatrix<3> metric;
  const auto sparse = testing::run_metric<D, Label>(metric, ls::shape(3), p, {0, 1, 2, 2});
  CHECK(sparse == matrix);
  const auto dense =
      testing::run_metric<D, float>(metric, ls::shape(3), p, {1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 1});
  CHECK(dense == matrix);
  CHECK(near(metric.result(sparse.data()), (1 + 1 + 0.5) / 3));
  STATIC_CHECK(!ls::ConfusionMatrix<3>::accepts<Label>(ls::shape(4)));
}

TEST_CASE("MeanOf is the mean over the loss' examples") {
  const ls::MeanOf<ls::Huber> huber{{.delta = 2}};
  CHECK(near(metric_value<D, float>(huber, ls::shape(2), {1, 5, 0, 0}, {0, 0, 0, 0}),
             (0.5 + 8) / 2 / 2));
  CHECK(huber.name == ls::Huber::name);
  STATIC_CHECK(ls::MeanOf<ls::SparseCategoricalCrossentropy>::accepts<Label>(ls::shape(3)));
  STATIC_CHECK(!ls::MeanOf<ls::SparseCategoricalCrossentropy>::accepts<float>(ls::shape(3)));
  STATIC_CHECK(!ls::MeanOf<ls::MeanSquaredError>::accepts<Label>(ls::shape(1)));
}

TEST_CASE("the cosine similarity is 1 for equal directions") {
  const ls::MeanCosineSimilarity metric;
  const auto value = [&](const std::vector<double>& p, const std::vector<double>& t) {
    return metric_value<D, float>(metric, ls::shape(2), p, t);
  };
  CHECK(near(value({3, 4}, {6, 8}), 1));
  CHECK(near(value({3, 4}, {-6, -8}), -1));
  CHECK(near(value({3, 4, 1, 0, 0, 2}, {4, 3, 0, 5, 1, 1}), (24.0 / 25 + std::sqrt(0.5)) / 3));
  CHECK(value({0, 0}, {1, 1}) == 0);
  CHECK(metric.name == "cosine_similarity");
  STATIC_CHECK(!ls::MeanCosineSimilarity::accepts<Label>(ls::shape(2)));
}

TEST_CASE("invalid options of metrics are refused") {
  CHECK_THROWS_AS(ls::Precision{.threshold = none}.check(), ls::UsageError);
  CHECK_THROWS_AS(ls::Recall{.threshold = none}.check(), ls::UsageError);
  CHECK_THROWS_AS(ls::BinaryAccuracy{.threshold = none}.check(), ls::UsageError);
  CHECK_THROWS_AS(ls::TopKCategoricalAccuracy{.k = 0}.check(), ls::UsageError);
  CHECK_THROWS_AS((ls::MeanOf<ls::Huber>{{.delta = 0}}.check()), ls::UsageError);
  CHECK_NOTHROW(ls::Precision{}.check());
}
