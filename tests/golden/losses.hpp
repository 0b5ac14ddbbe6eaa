/// \file
/// Compares losses with Keras, on any device.
#pragma once

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <numbers>
#include <numeric>
#include <string>
#include <vector>

#include "golden/golden_file.hpp"
#include "lockstep/losses/losses.hpp"
#include "support/run_loss.hpp"

namespace golden {

namespace ls = lockstep;

/// Compares a loss with `<name>/value` and `<name>/grad`, which are means over the batch, and with
/// `<name>/weighted`, which has sample weights: each row of the gradient is scaled by its weight.
/// `more`: excess of Keras' value due to its own rounding.
template <class D, class Loss, class Target>
void meets_loss(const std::string& name, const Loss& loss, const std::vector<double>& prediction,
                const std::vector<Target>& target, double more = 0) {
  DYNAMIC_SECTION(name) {
    const GoldenFile file("losses");
    const std::size_t count = file.count("logits");
    const auto op = loss.op(file.example_shape("logits"));
    const auto p = testing::as<typename D::real>(prediction);
    const auto run = testing::run_loss<D>(op, count, p, target, 1.0 / static_cast<double>(count));
    const double examples = static_cast<double>(count);
    const double value = file.values(name + "/value").at(0) - more;
    auto gradient = file.values(name + "/grad");
    CHECK(std::abs(run.sum / examples - value) <= tolerance<D> * std::abs(value));
    CHECK(testing::relative_error(run.gradient, gradient) < tolerance<D>);

    const auto weights = file.values("sample_weight");
    const auto weighted = testing::run_loss<D>(op, count, p, target, 1.0 / examples, {},
                                               testing::as<typename D::real>(weights));
    const double share = std::accumulate(weights.begin(), weights.end(), 0.0) / examples;
    const double with_weights = file.values(name + "/weighted").at(0) - more * share;
    CHECK(std::abs(weighted.sum / examples - with_weights) <= tolerance<D> * std::abs(value));
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] *= weights[i / op.size()];
    CHECK(testing::relative_error(weighted.gradient, gradient) < tolerance<D>);
  }
}

/// Applies `f` to each value.
template <class F>
std::vector<double> mapped(std::vector<double> values, const F& f) {
  std::transform(values.begin(), values.end(), values.begin(), f);
  return values;
}

template <class D>
void meets_losses() {
  using T = typename D::real;
  const GoldenFile file("losses");
  const auto logits = file.values("logits"), softmax = file.values("softmax");
  const auto sigmoid = mapped(logits, [](double x) { return 1 / (1 + std::exp(-x)); });
  const auto labels = testing::as<std::int32_t>(file.values("labels"));
  const auto targets = testing::as<T>(file.values("targets"));
  const auto onehot = testing::as<T>(file.values("onehot"));
  const auto binary = testing::as<T>(file.values("binary"));
  // Inputs derived from the stored ones by the rule in the file's metadata.
  const auto distance_from_0 = [](double x) { return std::abs(x); };
  const auto counts = testing::as<T>(mapped(file.values("targets"), distance_from_0));
  const auto rates = mapped(logits, [](double x) { return std::abs(x) + 0.1; });
  const auto signs =
      testing::as<T>(mapped(file.values("binary"), [](double t) { return 2 * t - 1; }));
  const auto soft =
      testing::as<T>(mapped(file.values("onehot"), [](double t) { return t * 0.9 + 0.02; }));

  meets_loss<D>("mse", ls::MeanSquaredError{}, logits, targets);
  meets_loss<D>("mae", ls::MeanAbsoluteError{}, logits, targets);
  meets_loss<D>("huber", ls::Huber{}, logits, targets);
  // Keras subtracts the logarithm of 2 as a float32.
  const double log_of_2 = std::numbers::ln2 - static_cast<double>(std::numbers::ln2_v<float>);
  meets_loss<D>("log_cosh", ls::LogCosh{}, logits, targets, log_of_2);
  meets_loss<D>("cosine", ls::CosineSimilarity{}, logits, targets);
  meets_loss<D>("poisson", ls::Poisson{}, rates, counts);
  meets_loss<D>("hinge", ls::Hinge{}, logits, signs);
  meets_loss<D>("kl", ls::KLDivergence{}, softmax, soft);
  meets_loss<D>("bce_logits", ls::BinaryCrossentropy{.from_logits = true}, logits, binary);
  meets_loss<D>("bce_probabilities", ls::BinaryCrossentropy{}, sigmoid, binary);
  using Categorical = ls::CategoricalCrossentropy;
  meets_loss<D>("cce_logits", Categorical{.from_logits = true}, logits, onehot);
  meets_loss<D>("cce_logits_smooth", Categorical{.from_logits = true, .label_smoothing = 0.1},
                logits, onehot);
  meets_loss<D>("cce_probabilities", Categorical{}, softmax, onehot);
  using Sparse = ls::SparseCategoricalCrossentropy;
  meets_loss<D>("sparse_cce_logits", Sparse{.from_logits = true}, logits, labels);
  meets_loss<D>("sparse_cce_probabilities", Sparse{}, softmax, labels);
}

}  // namespace golden
