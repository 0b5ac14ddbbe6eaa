/// \file
/// Whole models on a GPU compared with Reference<double>: the same random numbers, losses and
/// metrics in each epoch, with one replica and with two.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "compare.hpp"
#include "lockstep/lockstep.hpp"
#include "unit/training/hidden_nan.hpp"

using namespace lockstep;
using namespace testing;

namespace {

struct Net : Sequential<Input<6, 6, 2>, RandomFlip<horizontal>, RandomRotation<factor(0.1)>,
                        RandomCrop<4, 4>, Flatten, Dense<8>, ReLU, Dropout<rate(0.25f)>,
                        GaussianNoise<stddev(0.1f)>, Dense<3, kernel_regularizer(L2{0.01f})>> {};

/// The histories of two epochs, including a partial batch, followed by all weights.
template <class S>
std::vector<double> trained(const S& strategy) {
  using T = typename S::device::real;
  Model model{Net{},
              strategy,
              SparseCategoricalCrossentropy{.from_logits = true},
              Adam{.learning_rate = 0.02, .with = {.global_clipnorm = 0.5}},
              Accuracy{},
              ConfusionMatrix<3>{}};
  std::vector<std::int32_t> labels;
  for (int i = 0; i < 22; ++i) labels.push_back(i % 3);
  auto data = tensors(as<T>(as<float>(normal_values(22 * 72, 5))), shape(6, 6, 2), labels);
  const auto history =
      model.fit(data | shuffle(22) | batch(8), {.epochs = 2, .progress = ProgressStyle::none});
  std::vector<double> all;
  for (const auto& name : history.names())
    for (const double value : history[name]) all.push_back(value);
  for (const auto& p : model.parameters())
    for (const T w : model.weights(p.name)) all.push_back(static_cast<double>(w));
  return all;
}

/// With and without recomputation.
template <class Activation>
struct Branchy : Sequential<Input<6>, Dense<8>, Activation, Dropout<rate(0.25f)>,
                            Residual<Sequential<Dense<8>>>, Tanh, Dropout<rate(0.5f)>, Dense<2>> {};
template <class Activation>
struct Again
    : Sequential<Input<6>, Recompute<Sequential<Dense<8>, Activation, Dropout<rate(0.25f)>>>,
                 Residual<Recompute<Sequential<Dense<8>, Residual<Dense<8>>, Tanh>>>, Dense<2>> {};

template <class D, class Model>
std::vector<double> losses() {
  lockstep::Model model{Model{}, Seed{3}, OneDevice<D>{}, MeanSquaredError{},
                        SGD{.learning_rate = 0.1}};
  std::vector<float> x(6 * 12), y(2 * 12);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 3;
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<float>(i % 5) / 5;
  std::vector<double> all;
  for (int step = 0; step < 4; ++step) all.push_back(model.train_on_batch(x, y)["loss"]);
  return all;
}

}  // namespace

TEST_CASE("a model with dropout and clipping trains on a GPU as on the reference") {
  const TestGpu gpu;
  const auto expected = trained(OneDevice<Reference<double>>{});
  CHECK(relative_error(trained(OneDevice<Cuda>{}), expected) < tolerance);
  CHECK(relative_error(trained(Mirrored<Cuda>{{"/gpu:0", "/gpu:0"}}), expected) < tolerance);
}

TEST_CASE(
    "TerminateOnNaN ends training on a GPU after the failing step, even if the loss hides it") {
  const TestGpu gpu;
  CHECK(hidden_nan::steps(OneDevice<Cuda>{}) == hidden_nan::expected_steps);
}

TEST_CASE("activations, sums and dropout masks equal the reference's, also when recomputed") {
  const TestGpu gpu;
  const auto trains_alike = []<class Model>() {
    const auto expected = losses<Reference<float>, Model>(), seen = losses<Cuda, Model>();
    REQUIRE(seen.size() == expected.size());
    for (std::size_t i = 0; i < seen.size(); ++i)
      CHECK(std::abs(seen[i] - expected[i]) < 1e-5 * expected[i]);
  };
  // GELU keeps x; Sigmoid runs in place and keeps y.
  trains_alike.operator()<Branchy<GELU>>();
  trains_alike.operator()<Branchy<Sigmoid>>();
  trains_alike.operator()<Again<GELU>>();
  trains_alike.operator()<Again<Sigmoid>>();
}

TEST_CASE(
    "steps of the program's own, with gradients of inputs and outputs, equal the reference's") {
  const TestGpu gpu;
  const auto all = []<class D>(const D&) {
    using T = typename D::real;
    lockstep::Model model{Again<GELU>{}, Seed{3}, OneDevice<D>{}, MeanSquaredError{},
                          SGD{.learning_rate = 0.1}};
    std::vector<T> x(6 * 12), y(2 * 12);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(i % 7) - 3;
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<T>(i % 5) / 5;
    std::vector<double> result;
    const auto keep = [&](const auto& values) {
      result.insert(result.end(), values.begin(), values.end());
    };
    for (int step = 0; step < 2; ++step) {
      auto gradients = model.gradients_of(model.batch(x, y));
      gradients *= 0.5;
      model.apply(gradients);
      keep(gradients.values());
      keep(model.input_gradients(model.batch(x, y)));
      gradients = model.gradients_of(model.batch(x), y);
      keep(gradients.values());
      model.apply(gradients);
    }
    for (const auto& batch : model.batches(tensors(x, shape(6), y, shape(2)) | lockstep::batch(5)))
      result.push_back(model.train_step(batch)["loss"]);
    return result;
  };
  CHECK(relative_error(all(Cuda{}), all(Reference<double>{})) < tolerance);
}
