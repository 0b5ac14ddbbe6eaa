/// \file
/// Optimizers against Keras: the weights after each of twelve updates, on any device.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <string>
#include <vector>

#include "golden/golden_file.hpp"
#include "lockstep/optimizers/adam.hpp"
#include "lockstep/optimizers/sgd.hpp"
#include "support/run_optimizer.hpp"

namespace golden {

namespace ls = lockstep;

/// Row `i` of a table with rows of n numbers.
inline std::vector<double> row(const std::vector<double>& table, std::size_t i, std::size_t n) {
  const auto first = table.begin() + static_cast<std::ptrdiff_t>(i * n);
  return {first, first + static_cast<std::ptrdiff_t>(n)};
}

template <class D, class O>
void meets_optimizer(const std::string& name, const O& optimizer) {
  DYNAMIC_SECTION(name) {
    using T = typename D::real;
    const GoldenFile file("optimizers");
    const auto w0 = testing::as<T>(file.values("w0"));
    const auto gradients = file.values("g"), expected = file.values(name);
    testing::OptimizerRun<D, O> run(optimizer, w0);
    const std::size_t steps = gradients.size() / w0.size();
    REQUIRE(steps == 12);
    for (std::size_t step = 0; step < steps; ++step) {
      CAPTURE(step);
      run.apply(testing::as<T>(row(gradients, step, w0.size())));
      CHECK(testing::relative_error(run.weights(), row(expected, step, w0.size())) < tolerance<D>);
    }
  }
}

template <class D>
void meets_optimizers() {
  meets_optimizer<D>("sgd", ls::SGD{.learning_rate = 0.01});
  meets_optimizer<D>("sgd_momentum", ls::SGD{.learning_rate = 0.01, .momentum = 0.9});
  meets_optimizer<D>("sgd_nesterov",
                     ls::SGD{.learning_rate = 0.01, .momentum = 0.9, .nesterov = true});
  meets_optimizer<D>("adam", ls::Adam{.learning_rate = 0.01});
  meets_optimizer<D>("adam_amsgrad", ls::Adam{.learning_rate = 0.01, .amsgrad = true});
}

}  // namespace golden
