// expect: lockstep::Model: 'M', a metric, does not fit the model's output or the loss' targets;
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/sources/tensors.hpp"
#include "lockstep/layers/activations/relu.hpp"
#include "lockstep/losses/mean_squared_error.hpp"
#include "lockstep/metrics/confusion_matrix.hpp"
#include "lockstep/optimizers/sgd.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/strategies/one_device.hpp"
#include "lockstep/training/model.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::ReLU> {};
int main() {
  ls::Model model{Net{}, ls::OneDevice<ls::Reference<float>>{}, ls::MeanSquaredError{}, ls::SGD{},
                  ls::ConfusionMatrix<10>{}};
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(8), std::vector<float>(1), ls::shape(1));
  const auto history = model.fit(data | ls::batch(1), {.epochs = 1});
  const auto logs = model.evaluate(data | ls::batch(1));
  return static_cast<int>(history["loss"].size() + logs.size());
}
