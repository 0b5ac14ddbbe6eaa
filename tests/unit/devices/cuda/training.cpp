/// \file
/// Whole models on a GPU beside Reference<double>: the same draws, losses and metrics of each
/// epoch, by one replica and by two.
#include <catch2/catch_test_macros.hpp>
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

/// All numbers of the history of two epochs, a part of a batch among them, then all weights.
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

}  // namespace

TEST_CASE("a model that draws and clips trains on a GPU as on the reference") {
  const TestGpu gpu;
  const auto expected = trained(OneDevice<Reference<double>>{});
  CHECK(relative_error(trained(OneDevice<Cuda>{}), expected) < tolerance);
  CHECK(relative_error(trained(Mirrored<Cuda>{{"/gpu:0", "/gpu:0"}}), expected) < tolerance);
}

TEST_CASE("TerminateOnNaN ends a training on a GPU after the step that its loss may hide") {
  const TestGpu gpu;
  CHECK(hidden_nan::steps(OneDevice<Cuda>{}) == hidden_nan::expected_steps);
}
