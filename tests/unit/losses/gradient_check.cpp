/// \file
/// The gradient of each loss against central differences of its value, in double.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "lockstep/losses/losses.hpp"
#include "lockstep/reference.hpp"
#include "support/check_loss.hpp"

namespace ls = lockstep;

namespace {

using Double = ls::Reference<double>;
constexpr int rows = 3, width = 4;
constexpr double tolerance = 1e-8;

std::vector<double> reals(std::uint64_t seed) { return testing::normal_values(rows * width, seed); }

/// Random values in (0.05, 0.95); rows do not sum to 1.
std::vector<double> fractions(std::uint64_t seed) {
  auto values = reals(seed);
  std::transform(values.begin(), values.end(), values.begin(),
                 [](double x) { return 0.05 + 0.9 / (1 + std::exp(-x)); });
  return values;
}

std::vector<double> signs(std::uint64_t seed) {
  auto values = reals(seed);
  std::transform(values.begin(), values.end(), values.begin(),
                 [](double x) { return x < 0 ? -1.0 : 1.0; });
  return values;
}

/// The largest error of the gradient of a RowwiseLoss.
template <ls::Loss Loss>
  requires ls::RowwiseLoss<decltype(Loss{}.op(ls::Shape{}))>  //
double error(const Loss& loss, const std::vector<double>& p,
             const std::vector<ls::target_as<typename Loss::target_type, double>>& t) {
  return testing::loss_gradient_error<Double>(loss.op(ls::shape(width)), p, t);
}

}  // namespace

TEST_CASE("the gradient of every loss is the derivative of its value") {
  using Sparse = ls::SparseCategoricalCrossentropy;
  using Categorical = ls::CategoricalCrossentropy;
  using Binary = ls::BinaryCrossentropy;
  CHECK(error(ls::MeanSquaredError{}, reals(1), reals(2)) < tolerance);
  CHECK(error(ls::MeanAbsoluteError{}, reals(1), reals(2)) < tolerance);
  CHECK(error(ls::Huber{.delta = 0.7}, reals(1), reals(2)) < tolerance);
  CHECK(error(ls::LogCosh{}, reals(1), reals(2)) < tolerance);
  CHECK(error(ls::Hinge{}, reals(1), signs(2)) < tolerance);
  CHECK(error(ls::Poisson{}, fractions(1), fractions(2)) < tolerance);
  CHECK(error(ls::CosineSimilarity{}, reals(1), reals(2)) < tolerance);
  CHECK(error(ls::KLDivergence{}, fractions(1), fractions(2)) < tolerance);
  CHECK(error(Binary{.from_logits = true}, reals(1), fractions(2)) < tolerance);
  CHECK(error(Binary{.from_logits = true, .label_smoothing = 0.2}, reals(1), fractions(2)) <
        tolerance);
  CHECK(error(Binary{}, fractions(1), fractions(2)) < tolerance);
  CHECK(error(Binary{.label_smoothing = 0.2}, fractions(1), fractions(2)) < tolerance);
  CHECK(error(Categorical{.from_logits = true}, reals(1), fractions(2)) < tolerance);
  CHECK(error(Categorical{.from_logits = true, .label_smoothing = 0.1}, reals(1), fractions(2)) <
        tolerance);
  CHECK(error(Categorical{}, fractions(1), fractions(2)) < tolerance);
  CHECK(error(Categorical{.label_smoothing = 0.1}, fractions(1), fractions(2)) < tolerance);
  CHECK(error(Sparse{.from_logits = true}, reals(1), {0, 3, 1}) < tolerance);
  CHECK(error(Sparse{}, fractions(1), {2, 0, 0}) < tolerance);
}
