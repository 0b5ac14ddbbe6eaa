/// \file
/// A model's metrics: which are rejected, their names, and their states.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "unit/training/model_support.hpp"

namespace {

using namespace line;  // NOLINT: the fixture of this file
using Catch::Matchers::ContainsSubstring;

/// A custom loss whose target is smaller than its prediction: three quantiles of one value.
struct PinballOp {
  using target_type = float;
  constexpr std::size_t size() const { return 3; }
  constexpr std::size_t target_size() const { return 1; }

  template <class T>
  double example(const T* p, const T* t, T* g, double scale) const {
    double sum = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      const double quantile = 0.25 * static_cast<double>(k + 1);
      const double above = static_cast<double>(t[0] - p[k]);
      const double slope = above > 0 ? quantile : quantile - 1;
      sum += slope * above;
      if (g != nullptr) g[k] = static_cast<T>(-scale * slope);
    }
    return sum;
  }
};
struct Pinball {
  using target_type = float;
  static constexpr std::string_view name = "pinball";
  static constexpr bool accepts(ls::Shape out) { return out == ls::shape(3); }
  static constexpr ls::Shape target_shape(ls::Shape) { return ls::shape(1); }
  constexpr PinballOp op(ls::Shape) const { return {}; }
};
/// A thousand classes; with identity weights the outputs are the inputs.
struct Thousand : ls::Sequential<ls::Input<1000>, ls::Dense<1000>> {};
struct Quantiles : ls::Sequential<ls::Input<1>, ls::Dense<3>> {};

}  // namespace

TEST_CASE("a metric that reads more target values than the loss has is rejected") {
  const auto rejected = [](const auto& metric) {
    CHECK_THROWS_WITH((ls::Model{Quantiles{}, Double{}, Pinball{}, ls::SGD{}, metric}),
                      ContainsSubstring(std::string(metric.name)) &&
                          ContainsSubstring("3 target values") && ContainsSubstring("pinball") &&
                          ContainsSubstring("remove"));
  };
  rejected(ls::RootMeanSquaredError{});
  rejected(ls::BinaryAccuracy{});
  rejected(ls::Precision{});
  rejected(ls::Recall{});
  rejected(ls::AUC<>{});
  rejected(ls::Accuracy{});
  rejected(ls::TopKCategoricalAccuracy{.k = 2});
  rejected(ls::ConfusionMatrix<3>{});
  rejected(ls::MeanOf<ls::MeanSquaredError>{});
}

TEST_CASE("a metric with the loss' target shape is accepted") {
  ls::Model m{Quantiles{}, Double{}, Pinball{}, ls::SGD{.learning_rate = 0.01},
              ls::MeanOf<Pinball>{}};
  const auto history = m.fit(points() | ls::batch(5), quiet(2));
  CHECK(near(history["pinball"].back(), history["loss"].back()));
}

TEST_CASE("metrics of equal names get numbers, as in Keras") {
  using Matrix = ls::ConfusionMatrix<3>;
  using Names = std::vector<std::string>;
  ls::Model m{Classes{},
              Float{},
              ls::SparseCategoricalCrossentropy{.from_logits = true},
              ls::SGD{.learning_rate = 0.1},
              ls::TopKCategoricalAccuracy{.k = 1},
              Matrix{},
              ls::TopKCategoricalAccuracy{.k = 2},
              ls::Accuracy{},
              ls::TopKCategoricalAccuracy{.k = 3}};
  const auto history = m.fit(classes() | ls::batch(16), classes(12) | ls::batch(5), quiet());
  const std::string top = "top_k_categorical_accuracy";
  const Names own{"loss", top, "confusion_matrix", top + "_1", "accuracy", top + "_2"};
  Names all = own;
  for (const auto& name : own) all.push_back("val_" + name);
  CHECK(history.names() == all);
  const auto logs = m.evaluate(classes() | ls::batch(7), {.progress = ls::ProgressStyle::none});
  CHECK(logs[top] == logs["accuracy"]);
  CHECK(logs[top + "_1"] > logs[top]);
  CHECK(logs[top + "_1"] < 1);
  CHECK(logs[top + "_2"] == 1);
  // The states of equal types are distinguished by their position.
  using TopK = ls::TopKCategoricalAccuracy;
  const auto first = m.metric_state<TopK>(), second = m.metric_state<TopK, 1>(),
             third = m.metric_state<TopK, 2>();
  CHECK(first[0] / 40 == logs[top]);
  CHECK(second[0] / 40 == logs[top + "_1"]);
  CHECK(third[0] == 40);
  CHECK(m.metric_state<TopK, 0>() == first);
}

TEST_CASE("a metric's numbered name is not another metric's name") {
  CHECK(ls::detail::log_names({"loss", "auc", "auc_1", "auc", "loss", "auc"}) ==
        std::vector<std::string>{"loss", "auc", "auc_1", "auc_2", "loss_1", "auc_3"});
}

TEMPLATE_TEST_CASE("a metric's state may be larger than the stack", "", Float,
                   ls::Mirrored<ls::Reference<float>>) {
  using Matrix = ls::ConfusionMatrix<1000>;
  TestType strategy;
  if constexpr (requires { strategy.replicas; }) strategy.replicas = 2;
  ls::Model m{Thousand{}, strategy, ls::SparseCategoricalCrossentropy{.from_logits = true},
              ls::SGD{.learning_rate = 0.1}, Matrix{}};
  std::vector<float> identity(1000 * 1000);
  for (std::size_t i = 0; i < 1000; ++i) identity[i * 1001] = 1;
  m.set_weights("dense/kernel", identity);
  // One example each of classes 0, 500 and 999, and one of 7 that is predicted as 8.
  const std::vector<std::size_t> shown{0, 500, 999, 8};
  std::vector<float> x(4 * 1000);
  for (std::size_t i = 0; i < 4; ++i) x[i * 1000 + shown[i]] = 1;
  const std::vector<std::int32_t> labels{0, 500, 999, 7};
  const auto data = ls::tensors(x, ls::shape(1000), labels);
  const auto logs = m.evaluate(data | ls::batch(3), {.progress = ls::ProgressStyle::none});
  CHECK(logs["confusion_matrix"] == 0.75);
  const auto matrix = m.template metric_state<Matrix>();
  REQUIRE(matrix.size() == 1000 * 1000);
  CHECK(matrix[0] == 1);
  CHECK(matrix[500 * 1001] == 1);
  CHECK(matrix[999 * 1001] == 1);
  CHECK(matrix[7 * 1000 + 8] == 1);
  CHECK(std::accumulate(matrix.begin(), matrix.end(), 0.0) == 4);
  CHECK(m.test_on_batch(x, labels)["confusion_matrix"] == 0.75);
  const auto history = m.fit(data | ls::batch(2), quiet());
  CHECK(history["confusion_matrix"].back() > 0);
}
