/// \file
#include "lockstep/devices/cuda/ops/recurrent/mask.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <vector>

#include "lockstep/lockstep.hpp"
#include "unit/devices/cuda/compare.hpp"

namespace ls = lockstep;

namespace {

namespace masks {

/// Embedding, mask, two directions, steps, mean of unpadded steps.
struct Reviews
    : ls::Sequential<ls::Input<6>, ls::Embedding<9, 5, ls::mask_zero>,
                     ls::Bidirectional<ls::LSTM<4, ls::return_sequences, ls::dropout(0.25f)>>,
                     ls::TimeDistributed<ls::Dense<6, ls::tanh>>,
                     ls::Bidirectional<ls::GRU<3, ls::return_sequences>, ls::Add>,
                     ls::GlobalAveragePooling1D, ls::Dense<1>> {};
struct Signals : ls::Sequential<ls::Input<5, 3>, ls::Masking<-1>,
                                ls::GRU<4, ls::return_sequences, ls::reset_after(false)>,
                                ls::SimpleRNN<3>, ls::Dense<1>> {};

/// Its output has a mask.
struct Tags : ls::Sequential<ls::Input<5>, ls::Embedding<7, 3, ls::mask_zero>,
                             ls::LSTM<4, ls::return_sequences>, ls::Dense<3>> {};

/// Logs and weights after three epochs on data that may reside on the device.
template <class D>
std::vector<double> tagged() {
  using T = typename D::real;
  ls::Model model{Tags{},
                  ls::Seed{3},
                  ls::OneDevice<D>{},
                  ls::SparseCategoricalCrossentropy{.from_logits = true},
                  ls::SGD{.learning_rate = 0.25},
                  ls::Accuracy{}};
  const std::vector<T> x{1, 2, 0, 0, 0, 3, 4, 5, 6, 0, 1, 0, 0, 0, 0};
  const std::vector<std::int32_t> y{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2};
  const auto data = ls::tensors(x, ls::shape(5), y, ls::shape(5)) | ls::batch(2);
  const auto history = model.fit(data, {.epochs = 3, .progress = ls::ProgressStyle::none});
  std::vector<double> all(history["loss"].begin(), history["loss"].end());
  const auto add = [&](const auto& values) { all.insert(all.end(), values.begin(), values.end()); };
  add(history["accuracy"]);
  for (const auto& p : model.parameters()) add(model.weights(p.name));
  all.push_back(model.evaluate(data)["loss"]);
  // With sample weights, which the accuracy does not read.
  const std::vector<T> w{1, 2, 3, 1, 1, 0.5, 1, 2, 1, 1, 3, 1, 1, 1, 1};
  const ls::Logs logs = model.train_on_batch(ls::global_batch, x, y, w);
  add(std::vector{logs["loss"], logs["accuracy"]});
  add(model.input_gradients(model.batch(x, y, w)));
  return all;
}

/// The weights after three steps, and the predictions.
template <class D, class Net, class T = typename D::real>
std::vector<double> trained(Net net, const std::vector<float>& x, ls::Shape in) {
  ls::Model model{net, ls::Seed{3}, ls::OneDevice<D>{}, ls::MeanSquaredError{},
                  ls::SGD{.learning_rate = 0.25}};
  const auto data =
      ls::tensors(testing::as<T>(x), in, std::vector<float>{1, -1, 0.5f}, ls::shape(1)) |
      ls::batch(3);
  model.fit(data, {.epochs = 3, .progress = ls::ProgressStyle::none});
  std::vector<double> all;
  const auto add = [&](const auto& values) { all.insert(all.end(), values.begin(), values.end()); };
  for (const auto& p : model.parameters()) add(model.weights(p.name));
  const auto predicted = model.predict(data);
  add(predicted.elements());
  return all;
}
template <class Net>
void trains_as_reference(Net net, const std::vector<float>& x, ls::Shape in) {
  testing::TestGpu gpu;
  const auto expected = trained<ls::Reference<double>>(net, x, in);
  CHECK(testing::relative_error(trained<ls::Cuda>(net, x, in), expected) < 1e-5);
}

}  // namespace masks
}  // namespace

TEST_CASE("masks on a GPU agree with the reference") {
  testing::TestGpu gpu;
  const std::vector<float> steps{0.5f, 0.5f, 0.5f, 1, 0.5f, 0.5f, 2, 0.5f};
  const auto mask_of = [&](const ls::MaskOp& op, std::size_t count, const std::vector<float>& x,
                           const std::vector<float>& x2) {
    return testing::run_layer<ls::Cuda>(op, count, x, {}, {}, {.training = false, .x2 = x2}).y;
  };
  CHECK(mask_of({ls::shape(2, 2), 0.5f}, 2, steps, {}) == std::vector<float>{0, 1, 0, 1});
  CHECK(mask_of({ls::shape(3), 0, true}, 1, {0, 1, 0}, {0, 0, 1}) == std::vector<float>{0, 1, 1});
  CHECK(mask_of({ls::shape(3), 0, true, true}, 1, {0, 1, 1}, {0, 0, 1}) ==
        std::vector<float>{0, 0, 1});
  const auto masked = testing::run_layer<ls::Cuda>(ls::Masking<0.5>::op(ls::shape(2, 2)), 2, steps,
                                                   {}, {1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(masked.y == std::vector<float>{0, 0, 0.5f, 1, 0, 0, 2, 0.5f});
  CHECK(masked.dx == std::vector<float>{0, 0, 3, 4, 0, 0, 7, 8});
  const ls::MaskedAverageOp average{ls::shape(4, 3)};
  auto n = testing::numbers(average, 12, 0, 3);
  n.x2 = {1, 0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0};  // one example is all padding
  const auto expected = testing::run<ls::Reference<double>>(average, 3, n);
  const auto found = testing::run<ls::Cuda>(average, 3, n);
  CHECK(testing::relative_error(found.y, expected.y) < 1e-6);
  CHECK(testing::relative_error(found.dx, expected.dx) < 1e-6);
}

TEST_CASE("padded sentences train on a GPU as on the reference") {
  masks::trains_as_reference(masks::Reviews{},
                             {1, 8, 3, 0, 0, 0, 2, 4, 0, 5, 7, 0, 6, 6, 1, 2, 3, 8}, ls::shape(6));
}
TEST_CASE("a loss on a GPU leaves out the padded steps of the output's mask") {
  testing::TestGpu gpu;
  const auto expected = masks::tagged<ls::Reference<double>>();
  CHECK(testing::relative_error(masks::tagged<ls::Cuda>(), expected) < 1e-5);
}
TEST_CASE("masked signals train on a GPU as on the reference") {
  ls::Philox g(8);
  std::vector<float> x;
  for (int step = 0; step < 15; ++step)
    for (int k = 0; k < 3; ++k)
      x.push_back(step % 5 > 2 || step == 6 ? -1.0f : static_cast<float>(g.normal()));
  masks::trains_as_reference(masks::Signals{}, x, ls::shape(5, 3));
}
