/// \file
/// The number of kernels that a step of the tutorials' CNN launches: a launch costs as much as it
/// computes.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/cuda.hpp"
#include "lockstep/lockstep.hpp"
#include "support/test_gpu.hpp"

using namespace lockstep;

namespace {

/// The tutorials' network with smaller sizes.
struct Cnn : Sequential<Input<12, 12, 1>, Conv2D<8, 3>, ReLU, MaxPooling2D<>, Flatten, Dense<6>,
                        ReLU, Dense<3>> {};

/// Launches of one step of `fit` with resident data, without graphs, so that each is counted.
template <class D, class... Ms>
std::size_t launches_of_a_step(const testing::HostGpu& gpu, const Ms&... metrics) {
  constexpr std::size_t steps = 3, size = 4;
  Model model{Cnn{}, OneDevice<D>{.on = {0, {.graphs = false}}},
              SparseCategoricalCrossentropy{.from_logits = true}, SGD{.learning_rate = 0.01f},
              metrics...};
  std::vector<std::uint8_t> x(steps * size * 144);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint8_t>(i * 37);
  std::vector<std::int32_t> y(steps * size);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<std::int32_t>(i % 3);
  std::vector<std::size_t> after;
  const LambdaCallback note{
      .on_epoch_end = [&](int, const Logs&) { after.push_back(gpu.launches); }};
  model.fit(tensors(x, shape(12, 12, 1), y) | rescale(1 / 255.0) | batch(size),
            {.epochs = 3, .callbacks = {note}, .progress = ProgressStyle::none});
  REQUIRE(after.size() == 3);
  // Once per epoch fit checks weights and gradients for NaN.
  const std::size_t of_steps = after[2] - after[1] - 2;
  REQUIRE(of_steps % steps == 0);
  return of_steps / steps;
}

}  // namespace

TEST_CASE("a step of a small convolutional network takes few launches") {
  testing::TestGpu machine;
  if (machine.host() == nullptr) SKIP("launches are counted on the host only");
  // The batch, three layers forward and backward, loss and metric, the update, and the sums for the
  // host.
  CHECK(launches_of_a_step<Cuda>(*machine.host(), Accuracy{}) == 10);
  // Plus conversions of the batch, of the result and of its gradient.
  CHECK(launches_of_a_step<CudaBFloat16>(*machine.host(), Accuracy{}) == 13);
}
