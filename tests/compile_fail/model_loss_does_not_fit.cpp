// expect: lockstep::Model: the loss does not accept the model's output shape; change the last layer
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/sources/tensors.hpp"
#include "lockstep/layers/activations/relu.hpp"
#include "lockstep/losses/mean_squared_error.hpp"
#include "lockstep/metrics/accuracy.hpp"
#include "lockstep/optimizers/sgd.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/strategies/one_device.hpp"
#include "lockstep/training/model.hpp"

namespace ls = lockstep;
struct OfVectors : ls::MeanSquaredError {
  static constexpr bool accepts(ls::Shape out) { return out.rank == 1; }
};
struct Image : ls::Sequential<ls::Input<8, 8, 3>, ls::ReLU> {};
int main() {
  ls::Model model{Image{}, ls::OneDevice<ls::Reference<float>>{}, OfVectors{}, ls::SGD{}};
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(8), std::vector<float>(1), ls::shape(1));
  const auto history = model.fit(data | ls::batch(1), {.epochs = 1});
  const auto logs = model.evaluate(data | ls::batch(1));
  return static_cast<int>(history["loss"].size() + logs.size());
}
