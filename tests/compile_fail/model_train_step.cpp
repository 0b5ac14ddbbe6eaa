// expect: lockstep::Model: train_step takes a batch; write model.train_step(model.batch(x, y)), or
// train_on_batch(x, y)
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/sources/tensors.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/losses/mean_squared_error.hpp"
#include "lockstep/metrics/accuracy.hpp"
#include "lockstep/optimizers/sgd.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/strategies/one_device.hpp"
#include "lockstep/training/model.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::Dense<1>> {};
int main() {
  ls::Model model{Net{}, ls::OneDevice<ls::Reference<float>>{}, ls::MeanSquaredError{}, ls::SGD{}};
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(8), std::vector<float>(1), ls::shape(1));
  const auto history = model.fit(data | ls::batch(1));
  model.train_step(std::vector<float>(8));
  const auto logs = model.evaluate(data | ls::batch(1));
  return static_cast<int>(history["loss"].size() + logs.size());
}
