/// \file
/// Compares metrics with Keras, which computes some of them in float32, on any device.
#pragma once

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "golden/golden_file.hpp"
#include "lockstep/losses/losses.hpp"
#include "lockstep/metrics/metrics.hpp"
#include "support/run_metric.hpp"

namespace golden {

namespace ls = lockstep;

template <class D>
void meets_metrics() {
  using T = typename D::real;
  const GoldenFile file("losses");
  const auto out = file.example_shape("logits");
  auto sigmoid = file.values("logits");
  std::transform(sigmoid.begin(), sigmoid.end(), sigmoid.begin(),
                 [](double x) { return 1 / (1 + std::exp(-x)); });
  const auto p = testing::as<T>(file.values("logits")), s = testing::as<T>(sigmoid);
  const auto targets = testing::as<T>(file.values("targets"));
  const auto binary = testing::as<T>(file.values("binary"));
  const auto onehot = testing::as<T>(file.values("onehot"));
  const auto labels = testing::as<std::int32_t>(file.values("labels"));
  const auto meets = [&](const std::string& name, double value) {
    CAPTURE(name);
    CHECK(std::abs(value - file.values("metric_" + name).at(0)) <= 1e-7 * std::abs(value));
  };
  using testing::metric_value;
  meets("mse", metric_value<D, float>(ls::MeanOf<ls::MeanSquaredError>{}, out, p, targets));
  meets("mae", metric_value<D, float>(ls::MeanOf<ls::MeanAbsoluteError>{}, out, p, targets));
  meets("rmse", metric_value<D, float>(ls::RootMeanSquaredError{}, out, p, targets));
  const double cosine = metric_value<D, float>(ls::MeanCosineSimilarity{}, out, p, targets);
  const double loss = file.values("cosine/value").at(0);  // the loss has the opposite sign
  CHECK(std::abs(cosine + loss) <= 1e-6);
  meets("binary_accuracy", metric_value<D, float>(ls::BinaryAccuracy{}, out, s, binary));
  meets("precision", metric_value<D, float>(ls::Precision{}, out, s, binary));
  meets("recall", metric_value<D, float>(ls::Recall{}, out, s, binary));
  meets("categorical_accuracy", metric_value<D, float>(ls::Accuracy{}, out, p, onehot));
  meets("sparse_categorical_accuracy",
        metric_value<D, std::int32_t>(ls::Accuracy{}, out, p, labels));
  meets("sparse_top2",
        metric_value<D, std::int32_t>(ls::TopKCategoricalAccuracy{.k = 2}, out, p, labels));
}

template <class D>
void meets_weighted_metrics() {
  using T = typename D::real;
  const GoldenFile file("weighted");
  const auto out = file.example_shape("metrics/prediction");
  const auto p = testing::as<T>(file.values("metrics/prediction"));
  const auto w = testing::as<T>(file.values("metrics/weights"));
  const auto real = testing::as<T>(file.values("metrics/real"));
  const auto binary = testing::as<T>(file.values("metrics/binary"));
  const auto onehot = testing::as<T>(file.values("metrics/onehot"));
  const auto labels = testing::as<std::int32_t>(file.values("metrics/labels"));
  const auto meets = [&]<class M>(const std::string& name, const M& metric, const auto& target) {
    CAPTURE(name);
    using Target =
        std::conditional_t<std::same_as<decltype(target), decltype(labels)&>, std::int32_t, float>;
    const double value =
        testing::metric_value<D, Target>(ls::Weighted<M>{metric}, out, p, target, w);
    const double allowed = name == "sparse_top2" ? 1e-7 : tolerance<D>;  // see the script
    CHECK(std::abs(value - file.values("metrics/value/" + name).at(0)) <= allowed);
    CHECK(value != testing::metric_value<D, Target>(metric, out, p, target));
  };
  meets("mse", ls::MeanOf<ls::MeanSquaredError>{}, real);
  meets("rmse", ls::RootMeanSquaredError{}, real);
  meets("cosine", ls::MeanCosineSimilarity{}, real);
  meets("binary_accuracy", ls::BinaryAccuracy{}, binary);
  meets("precision", ls::Precision{}, binary);
  meets("recall", ls::Recall{}, binary);
  meets("auc_roc", ls::AUC<>{}, binary);
  meets("auc_pr", ls::AUC<>{.curve = ls::Curve::pr}, binary);
  meets("categorical_accuracy", ls::Accuracy{}, onehot);
  meets("sparse_categorical_accuracy", ls::Accuracy{}, labels);
  meets("sparse_top2", ls::TopKCategoricalAccuracy{.k = 2}, labels);
}

}  // namespace golden
