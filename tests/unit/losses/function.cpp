/// \file
/// Functions as losses, in double, and a model with a function as layer and as loss.
#include "lockstep/losses/function.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <vector>

#include "lockstep/function.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/losses/losses.hpp"
#include "lockstep/reference.hpp"
#include "support/check_loss.hpp"
#include "support/run_loss.hpp"

namespace ls = lockstep;

namespace {

using Double = ls::Reference<double>;

// --8<-- [start:loss]
constexpr auto huber = [](auto p, auto t) {
  const auto e = abs(p - t);
  return select(e <= 1, 0.5 * e * e, e - 0.5);
};  // ls::Model model{Net{}, strategy, ls::Function<huber>{}, ls::SGD{}};
// --8<-- [end:loss]
constexpr auto log_cosh = [](auto p, auto t) {
  const auto e = abs(p - t);
  return e + log1p(exp(-2 * e)) - 0.69314718055994530942;
};
constexpr auto crossentropy = [](auto p, auto t) {
  return sum(t) * log(sum(exp(p - max(p)))) - sum(t * (p - max(p)));
};
constexpr auto cosine = [](auto p, auto t) {
  return -sum(p * t) / (sqrt(sum(p * p)) * sqrt(sum(t * t)));
};
constexpr auto centered = [](auto p, auto t) { return square(p - mean(p) - t); };

bool near(double a, double b) { return std::abs(a - b) <= 1e-12 * std::max(1.0, std::abs(b)); }

/// The numbers of two losses on the same three examples, with weights.
template <class Loss, class Other>
void same_loss(const Loss& loss, const Other& other, ls::Shape shape, double spread = 2) {
  const std::size_t size = 3 * shape.size();
  auto p = testing::normal_values(size, 3), t = testing::normal_values(size, 4);
  for (double& v : p) v *= spread;
  for (double& v : t) v = std::abs(v);
  const auto positions = ls::positions_of(shape).size();
  for (const std::size_t weights : {std::size_t{0}, std::size_t{1}, positions}) {
    std::vector<double> weight(3 * weights);
    for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = 0.5 + static_cast<double>(i);
    const auto a = testing::run_loss<Double>(loss.op(shape), 3, p, t, 0.25, {}, weight);
    const auto b = testing::run_loss<Double>(other.op(shape), 3, p, t, 0.25, {}, weight);
    CHECK(near(a.sum, b.sum));
    for (std::size_t i = 0; i < size; ++i) CHECK(near(a.gradient[i], b.gradient[i]));
  }
}

}  // namespace

TEST_CASE("a function of an element is the loss that it writes, for any shape and with weights") {
  same_loss(ls::Function<huber>{}, ls::Huber{}, ls::shape(7));
  same_loss(ls::Function<huber>{}, ls::Huber{}, ls::shape(4, 2, 3));
  same_loss(ls::Function<log_cosh>{}, ls::LogCosh{}, ls::shape(7), 10);
}

TEST_CASE("a function of a row is the loss that it writes, for any shape and with weights") {
  const ls::CategoricalCrossentropy logits{.from_logits = true};
  same_loss(ls::Function<crossentropy>{}, logits, ls::shape(7));
  same_loss(ls::Function<crossentropy>{}, logits, ls::shape(4, 5));
  same_loss(ls::Function<cosine>{}, ls::CosineSimilarity{}, ls::shape(4, 5));
}

TEST_CASE("elements that depend on their row give the mean of the row") {
  const auto op = ls::Function<centered>{}.op(ls::shape(2, 4));
  const auto p = testing::normal_values(16, 5), t = testing::normal_values(16, 6);
  double sum = 0;
  for (std::size_t row = 0; row < 16; row += 4) {
    const double mean = (p[row] + p[row + 1] + p[row + 2] + p[row + 3]) / 4;
    for (std::size_t i = row; i < row + 4; ++i)
      sum += (p[i] - mean - t[i]) * (p[i] - mean - t[i]) / 8;
  }
  CHECK(near(testing::run_loss<Double>(op, 2, p, t, 1).sum, sum));
  CHECK(testing::loss_gradient_error<Double>(op, p, t) < 1e-8);
}

namespace {

constexpr auto mish = [](auto x) { return x * tanh(softplus(x)); };
struct Net
    : ls::Sequential<ls::Input<3>, ls::Dense<4, ls::activation<ls::Function<mish>>>, ls::Dense<2>> {
};

template <class Strategy>
std::vector<float> trained(Strategy strategy) {
  std::vector<float> x, y;
  for (const double v : testing::normal_values(48, 7)) x.push_back(static_cast<float>(v));
  for (std::size_t i = 0; i < 48; i += 3) {
    y.push_back(x[i] * x[i + 1]);
    y.push_back(x[i + 2]);
  }
  ls::Model model{Net{}, ls::Seed{3}, strategy, ls::Function<huber>{},
                  ls::SGD{.learning_rate = 0.1, .momentum = 0.9}};
  const auto history = model.fit(ls::tensors(x, ls::shape(3), y, ls::shape(2)) | ls::batch(8),
                                 {.epochs = 20, .progress = ls::ProgressStyle::none});
  CHECK(history["loss"].back() < 0.25 * history["loss"].front());
  std::vector<float> all = model.weights("dense/kernel");
  const std::vector<float> last = model.weights("dense_1/kernel");
  all.insert(all.end(), last.begin(), last.end());
  return all;
}

}  // namespace

TEST_CASE("a model with a function as layer and as loss trains to the same bits on two replicas") {
  using D = ls::Reference<float>;
  CHECK(trained(ls::OneDevice<D>{.virtual_shards = 4}) ==
        trained(ls::Mirrored<D>{.replicas = 2, .virtual_shards = 4}));
}
