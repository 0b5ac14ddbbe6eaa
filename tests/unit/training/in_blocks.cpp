/// \file
/// Training with an output in blocks: the formulas of one product by hand, rows without a label, NaN,
/// strategies, and what predict returns.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "lockstep/lockstep.hpp"
#include "lockstep/predictor.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/sharded.hpp"
#include "lockstep/training/export/architecture.hpp"
#include "support/temporary_folder.hpp"

namespace {

namespace ls = lockstep;
using Label = std::int32_t;
using Loss = ls::SparseCategoricalCrossentropy;
using Oracle = ls::Reference<double>;
using Float = ls::Reference<float>;
constexpr Label none = -1;

std::vector<double> numbers(std::size_t count, double phase = 0) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = std::sin(0.7 * static_cast<double>(i * i % 97) + phase);
  return values;
}
/// Labels below `classes`; with `ignores`, those of the second example and each fifth are ignored.
std::vector<Label> labels(std::size_t examples, std::size_t steps, int classes, bool ignores) {
  std::vector<Label> y(examples * steps);
  for (std::size_t i = 0; i < y.size(); ++i)
    y[i] =
        ignores && (i / steps == 1 || i % 5 == 3) ? none : static_cast<Label>(i * i * 7) % classes;
  return y;
}
double distance(std::span<const double> a, std::span<const double> b) {
  double most = a.size() == b.size() ? 0 : 1e9;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double error = std::abs(a[i] - b[i]) / std::max(1.0, std::abs(b[i]));
    most = std::max(most, std::isnan(error) ? 1e9 : error);
  }
  return most;
}

/// The model of one Dense with D inputs and V outputs for each of T steps, by hand: loss, accuracy and
/// gradients of sum(w l) / labels that count.
struct ByHand {
  double loss = 0, accuracy = 0;
  std::vector<double> d_kernel, d_bias, dx;

  ByHand(const std::vector<double>& x, const std::vector<double>& kernel,
         const std::vector<double>& bias, const std::vector<Label>& y,
         const std::vector<double>& w) {
    const std::size_t classes = bias.size(), inputs = kernel.size() / classes;
    d_kernel.resize(kernel.size());
    d_bias.resize(classes);
    dx.resize(x.size());
    double counted = 0;
    for (const Label label : y) counted += label != none ? 1 : 0;
    for (std::size_t r = 0; r < y.size(); ++r) {
      if (y[r] == none) continue;
      const double* const row = x.data() + r * inputs;
      std::vector<double> p(classes);
      double sum = 0;
      std::size_t best = 0;
      for (std::size_t k = 0; k < classes; ++k) {
        double logit = bias[k];
        for (std::size_t i = 0; i < inputs; ++i) logit += row[i] * kernel[i * classes + k];
        p[k] = std::exp(logit);
        sum += p[k];
        if (p[k] > p[best]) best = k;
      }
      const auto label = static_cast<std::size_t>(y[r]);
      const double share = w[r] / counted;
      loss -= share * std::log(p[label] / sum);
      // Accuracy of one output is that of p > 0.5.
      const bool is_correct = classes == 1 ? (std::log(p[0]) > 0.5) == (label == 1) : best == label;
      accuracy += (is_correct ? 1 : 0) / counted;
      for (std::size_t k = 0; k < classes; ++k) {
        const double slope = share * (p[k] / sum - (k == label ? 1 : 0));
        d_bias[k] += slope;
        for (std::size_t i = 0; i < inputs; ++i) {
          d_kernel[i * classes + k] += slope * row[i];
          dx[r * inputs + i] += slope * kernel[i * classes + k];
        }
      }
    }
  }
};

template <int T, int D, int V, std::size_t Rows>
struct Product : ls::Sequential<ls::Input<T, D>, ls::InBlocks<ls::Dense<V>, Rows>> {};

struct Steps : ls::Sequential<ls::Input<4, 3>, ls::Dense<6, ls::tanh>, ls::Dropout<0.3>,
                              ls::InBlocks<ls::Dense<7>, 5>> {};

struct WholeSteps
    : ls::Sequential<ls::Input<4, 3>, ls::Dense<6, ls::tanh>, ls::Dropout<0.3>, ls::Dense<7>> {};

/// Compares a model of one product with the formulas, for 3 examples.
template <int T, int D, int V, std::size_t Rows>
void is_as_by_hand(bool ignores, bool weighted) {
  CAPTURE(T, D, V, Rows, ignores, weighted);
  constexpr std::size_t examples = 3;
  const auto x = numbers(examples * T * D), kernel = numbers(D * V, 1), bias = numbers(V, 2);
  const auto y = labels(examples, T, V, ignores);
  std::vector<double> w(y.size(), 1.0);
  if (weighted)
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = 0.25 * static_cast<double>(i % 5);
  const ByHand expected(x, kernel, bias, y, w);
  Loss loss{.from_logits = true};
  ls::Accuracy accuracy;
  if (ignores) loss.ignore_class = accuracy.ignore_class = none;
  ls::Model model{Product<T, D, V, Rows>{}, ls::OneDevice<Oracle>{}, loss,
                  ls::SGD{.learning_rate = 0.1}, accuracy};
  model.set_weights("dense/kernel", kernel);
  model.set_weights("dense/bias", bias);
  const auto batch = weighted ? model.batch(x, y, w) : model.batch(x, y);
  const auto gradients = model.gradients_of(batch);
  CHECK(std::abs(gradients.logs()["loss"] - expected.loss) < 1e-12);
  CHECK(std::abs(gradients.logs()["accuracy"] - expected.accuracy) < 1e-12);
  CHECK(distance(gradients["dense/kernel"], expected.d_kernel) < 1e-12);
  CHECK(distance(gradients["dense/bias"], expected.d_bias) < 1e-12);
  CHECK(distance(model.input_gradients(batch), expected.dx) < 1e-12);
  const ls::Logs tested = weighted ? model.test_on_batch(x, y, w) : model.test_on_batch(x, y);
  CHECK(std::abs(tested["loss"] - expected.loss) < 1e-12);
  CHECK(std::abs(tested["accuracy"] - expected.accuracy) < 1e-12);
}
template <int T, int D, int V, std::size_t Rows>
void is_as_by_hand() {
  for (const bool ignores : {false, true})
    for (const bool weighted : {false, true}) is_as_by_hand<T, D, V, Rows>(ignores, weighted);
}

}  // namespace

TEST_CASE("InBlocks: loss, accuracy and gradients are those of the formulas") {
  is_as_by_hand<4, 3, 7, 5>();  // 12 rows: 5, 5, 2
  is_as_by_hand<1, 5, 7, 0>();  // one block
}

TEST_CASE("InBlocks: an output of one class has no loss") {
  is_as_by_hand<4, 3, 1, 5>(true, true);
  ls::Model model{Product<4, 3, 1, 5>{}, ls::OneDevice<Oracle>{}, Loss{.from_logits = true},
                  ls::SGD{}};
  const auto x = numbers(24);
  const std::vector<Label> y(8);
  const auto g = model.gradients_of(model.batch(x, y));
  CHECK(g.logs()["loss"] == 0);
  CHECK(g.norm() == 0);
}

TEST_CASE("InBlocks: without a label that counts, and without a row, gradients are 0") {
  ls::Model model{Steps{}, ls::OneDevice<Oracle>{}, Loss{.from_logits = true, .ignore_class = none},
                  ls::SGD{}};
  const auto x = numbers(24);
  const std::vector<Label> y(8, none);
  const auto g = model.gradients_of(model.batch(x, y));
  CHECK(g.logs()["loss"] == 0);
  CHECK(g.norm() == 0);
  // Of two replicas one has no example; the other's gradients count.
  const auto one_step = [](auto strategy) {
    ls::Model m{Steps{}, ls::Seed{5}, strategy, Loss{.from_logits = true}, ls::SGD{}};
    m.train_on_batch(numbers(12), labels(1, 4, 7, false));
    return m.weights("dense_1/kernel");
  };
  CHECK(one_step(ls::Mirrored<Oracle>{.replicas = 2}) == one_step(ls::OneDevice<Oracle>{}));
}

TEST_CASE("InBlocks: NaN in a row reaches the loss and the weights") {
  ls::Model model{Product<4, 3, 7, 5>{}, ls::OneDevice<Oracle>{}, Loss{.from_logits = true},
                  ls::SGD{}};
  auto x = numbers(36);
  x[20] = std::numeric_limits<double>::quiet_NaN();
  const auto y = labels(3, 4, 7, false);
  const auto batch = model.batch(x, y);
  const auto g = model.gradients_of(batch);
  CHECK(std::isnan(g.logs()["loss"]));
  const auto kernel = g["dense/kernel"], bias = g["dense/bias"];
  CHECK(std::all_of(kernel.begin(), kernel.end(), [](double v) { return std::isnan(v); }));
  CHECK(std::all_of(bias.begin(), bias.end(), [](double v) { return std::isnan(v); }));
  const auto dx = model.input_gradients(batch);
  for (std::size_t i = 0; i < dx.size(); ++i) CHECK(std::isnan(dx[i]) == (i / 3 == 6));
}

TEST_CASE("InBlocks: replicas, shares of the optimizer and accumulated steps have the same bits") {
  using Device = ls::Reference<float>;
  const auto weights = [](auto strategy, std::size_t accumulated) {
    ls::Model model{
        Steps{},
        ls::Seed{5},
        strategy,
        Loss{.from_logits = true, .ignore_class = none},
        ls::Adam{.learning_rate = 0.05, .with = {.gradient_accumulation_steps = accumulated}},
        ls::Accuracy{.ignore_class = none}};
    const auto x = numbers(7 * 12);
    const std::vector<float> examples(x.begin(), x.end());
    std::vector<double> seen;
    for (int i = 0; i < 4; ++i) {
      const ls::Logs logs = model.train_on_batch(examples, labels(7, 4, 7, true));
      seen.push_back(logs["loss"]);
      seen.push_back(logs["accuracy"]);
    }
    const ls::Logs tested = model.test_on_batch(examples, labels(7, 4, 7, true));
    seen.push_back(tested["loss"]);
    for (const char* name : {"dense/kernel", "dense_1/kernel", "dense_1/bias"})
      for (const float w : model.weights(name)) seen.push_back(static_cast<double>(w));
    const ls::Predictions<float> outputs = model.predict(examples, 3);
    for (const float p : outputs.elements()) seen.push_back(static_cast<double>(p));
    return seen;
  };
  using Many = ls::Mirrored<Device>;
  for (const std::size_t accumulated : {1u, 2u}) {
    CAPTURE(accumulated);
    const auto one = weights(ls::OneDevice<Device>{.virtual_shards = 4}, accumulated);
    CHECK(weights(Many{.replicas = 2, .virtual_shards = 4}, accumulated) == one);
    CHECK(weights(Many{.replicas = 2, .virtual_shards = 4} | ls::Sharded{}, accumulated) == one);
    // One slice: weights are updated within backward.
    CHECK(distance(weights(ls::OneDevice<Device>{}, accumulated), one) < 1e-4);
  }
}

TEST_CASE("InBlocks: files and predictions are those of the network without it") {
  const TemporaryFolder folder;
  ls::Model model{Steps{}, ls::OneDevice<Oracle>{}, Loss{.from_logits = true}, ls::SGD{}};
  model.save_weights(folder / "w.safetensors");
  const auto x = numbers(5 * 12);
  const ls::Predictions<double> expected = model.predict(x, 2);
  std::vector<double> blocks(expected.elements().size()), whole(blocks);
  const ls::Predictor<Steps, Oracle> predictor(folder / "w.safetensors");
  predictor(x, blocks);
  const ls::Predictor<WholeSteps, Oracle> other(folder / "w.safetensors");
  other(x, whole);
  CHECK(std::equal(blocks.begin(), blocks.end(), expected.elements().begin()));
  CHECK(whole == blocks);
  ls::Architecture architecture = ls::architecture<Steps>();
  architecture.name = ls::architecture<WholeSteps>().name;
  CHECK(ls::to_json(architecture) == ls::to_json(ls::architecture<WholeSteps>()));
}
