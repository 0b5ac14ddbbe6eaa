/// \file
/// Metrics against Keras, which computes some of them in float32.
#include <algorithm>
#include <catch2/catch_template_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "golden/golden_file.hpp"
#include "lockstep/losses/losses.hpp"
#include "lockstep/metrics/metrics.hpp"
#include "lockstep/reference.hpp"
#include "support/run_metric.hpp"

namespace ls = lockstep;

TEMPLATE_TEST_CASE("Metrics have Keras' values", "[golden]", double, float) {
  using T = TestType;
  using D = ls::Reference<T>;
  const golden::GoldenFile file("losses");
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
  const double loss = file.values("cosine/value").at(0);  // it has the other sign
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
