#include "lockstep/losses/categorical_crossentropy.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "lockstep/losses/cosine_similarity.hpp"
#include "lockstep/losses/kl_divergence.hpp"
#include "lockstep/losses/sparse_categorical_crossentropy.hpp"
#include "lockstep/reference.hpp"
#include "support/run_loss.hpp"

namespace ls = lockstep;

namespace {

using Double = ls::Reference<double>;

template <class Loss>
testing::LossResult<double> run(const Loss& loss, const std::vector<double>& p,
                                const std::vector<double>& t) {
  return testing::run_loss<Double>(loss.op(ls::shape(static_cast<int>(p.size()))), 1, p, t, 1);
}

bool near(double a, double b) { return std::abs(a - b) <= 1e-12 * std::abs(b); }

}  // namespace

TEST_CASE("categorical cross-entropy of a one-hot target equals the sparse one of its label") {
  const std::vector<double> logits{0.5, -1, 2};
  const auto sparse = testing::run_loss<Double>(
      ls::SparseCategoricalCrossentropy{.from_logits = true}.op(ls::shape(3)), 1, logits, {2}, 1);
  const auto dense = run(ls::CategoricalCrossentropy{.from_logits = true}, logits, {0, 0, 1});
  CHECK(near(dense.sum, sparse.sum));
  CHECK(testing::relative_error(dense.gradient, sparse.gradient) < 1e-12);
}

TEST_CASE("categorical cross-entropy of large logits does not overflow") {
  const ls::CategoricalCrossentropy loss{.from_logits = true};
  CHECK(run(loss, {1e4, -1e4}, {1, 0}).sum == 0);
  CHECK(run(loss, {1e4, -1e4}, {0, 1}).sum == 2e4);
}

TEST_CASE("categorical cross-entropy normalizes probabilities, then clips them") {
  CHECK(near(run(ls::CategoricalCrossentropy{}, {1, 3}, {1, 0}).sum, std::log(4.0)));
  const auto certain = run(ls::CategoricalCrossentropy{}, {0, 1}, {1, 0});
  CHECK(near(certain.sum, -std::log(1e-7)));
  CHECK(certain.gradient == std::vector<double>{0, 0});
}

TEST_CASE("label smoothing s replaces a target t with t (1 - s) + s / classes") {
  const ls::CategoricalCrossentropy smooth{.label_smoothing = 0.3};
  const std::vector<double> p{0.2, 0.5, 0.3};
  CHECK(near(run(smooth, p, {0, 1, 0}).sum,
             run(ls::CategoricalCrossentropy{}, p, {0.1, 0.8, 0.1}).sum));
}

TEST_CASE("the divergence of equal distributions is 0, and probabilities of 0 are clipped") {
  CHECK(run(ls::KLDivergence{}, {0.25, 0.75}, {0.25, 0.75}).sum == 0);
  const auto result = run(ls::KLDivergence{}, {0, 1}, {1, 0});
  CHECK(near(result.sum, std::log(1 / 1e-7) + 1e-7 * std::log(1e-7)));
  CHECK(result.gradient == std::vector<double>{0, -1e-7});
}

TEST_CASE("cosine similarity is -1 for the same direction, whatever the lengths") {
  CHECK(near(run(ls::CosineSimilarity{}, {2, 0, 1}, {4, 0, 2}).sum, -1));
  CHECK(near(run(ls::CosineSimilarity{}, {2, 0, 1}, {-4, 0, -2}).sum, 1));
  CHECK(run(ls::CosineSimilarity{}, {2, 0, 0}, {0, 1, 0}).sum == 0);
}

TEST_CASE("cosine similarity of a prediction of zeros is 0 and has a finite gradient") {
  const auto result = run(ls::CosineSimilarity{}, {0, 0}, {3, 4});
  CHECK(result.sum == 0);
  CHECK(near(result.gradient[0], -0.6e7));
  CHECK(near(result.gradient[1], -0.8e7));
}

TEST_CASE("losses over classes accept vectors along the last axis") {
  STATIC_CHECK(ls::CategoricalCrossentropy::accepts(ls::shape(10)));
  STATIC_CHECK(ls::CategoricalCrossentropy::accepts(ls::shape(4, 4, 10)));
  STATIC_CHECK(ls::KLDivergence::accepts(ls::shape(2, 2)));
  STATIC_CHECK(ls::CosineSimilarity::accepts(ls::shape(2, 2)));
  STATIC_CHECK(!ls::CosineSimilarity::accepts(ls::shape()));
  STATIC_CHECK(ls::CategoricalCrossentropy::target_shape(ls::shape(4, 4, 10)) ==
               ls::shape(4, 4, 10));
  STATIC_CHECK(ls::CategoricalCrossentropy::target_shape(ls::shape(10)) == ls::shape(10));
}
