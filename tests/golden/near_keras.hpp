/// \file
/// Compares a run in mixed precision with one of Keras in float64.
#pragma once

#include <cmath>
#include <string>

#include "golden/resnet.hpp"
#include "golden/training.hpp"

namespace golden {

/// Compares the losses of all steps, and the direction of the first step's gradient as a whole. A
/// closer comparison is not possible, since rounding changes ReLU masks and pooling winners.
/// `steps`: number of steps of the run, if not 0.
inline void is_near_keras(const Trained& run, const GoldenFile& file, const std::string& prefix,
                          std::size_t steps = 0) {
  auto expected = file.values(prefix + "loss");
  if (steps > 0) expected.resize(steps);
  REQUIRE(run.losses.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i, run.losses[i], expected[i]);
    CHECK(std::abs(run.losses[i] - expected[i]) <= 2e-2 * std::abs(expected[i]));
  }
  double products = 0, ours_squared = 0, theirs_squared = 0;
  for (const auto& [name, ours] : run.gradients) {
    const auto theirs = file.values(prefix + "grad/" + name);
    REQUIRE(ours.size() == theirs.size());
    for (std::size_t i = 0; i < ours.size(); ++i) products += ours[i] * theirs[i];
    ours_squared += norm(ours) * norm(ours);
    theirs_squared += norm(theirs) * norm(theirs);
  }
  CHECK(products / std::sqrt(ours_squared * theirs_squared) > 0.9);
}

}  // namespace golden
