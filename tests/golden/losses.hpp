/// \file
/// Losses and accuracy against Keras, on any device.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "golden/golden_file.hpp"
#include "lockstep/losses/mean_squared_error.hpp"
#include "lockstep/losses/sparse_categorical_crossentropy.hpp"
#include "lockstep/metrics/accuracy.hpp"
#include "support/run_loss.hpp"

namespace golden {

namespace ls = lockstep;

/// A loss against `<name>/value` and `<name>/grad`, which are means over the batch.
template <class D, class Loss, class Target>
void meets_loss(const std::string& name, const Loss& loss, const std::string& prediction,
                const std::vector<Target>& target) {
  DYNAMIC_SECTION(name) {
    const GoldenFile file("losses");
    const std::size_t count = file.count(prediction);
    const auto op = loss.op(file.example_shape(prediction));
    const auto p = testing::as<typename D::real>(file.values(prediction));
    const auto run = testing::run_loss<D>(op, count, p, target, 1.0 / static_cast<double>(count));
    const double value = file.values(name + "/value").at(0);
    CHECK(std::abs(run.sum / static_cast<double>(count) - value) <= tolerance<D> * std::abs(value));
    CHECK(testing::relative_error(run.gradient, file.values(name + "/grad")) < tolerance<D>);
  }
}

template <class D>
void meets_losses() {
  const GoldenFile file("losses");
  const auto labels = testing::as<std::int32_t>(file.values("labels"));
  const auto targets = testing::as<typename D::real>(file.values("targets"));
  using Crossentropy = ls::SparseCategoricalCrossentropy;
  meets_loss<D>("sparse_cce_logits", Crossentropy{.from_logits = true}, "logits", labels);
  meets_loss<D>("sparse_cce_probabilities", Crossentropy{}, "softmax", labels);
  meets_loss<D>("mse", ls::MeanSquaredError{}, "logits", targets);
}

}  // namespace golden
