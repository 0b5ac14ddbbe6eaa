// expect: lockstep::Masking: the loss reads the mask of the output, so Masking must read an input of
// the network; move it before all other layers
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/recurrent/masking.hpp"
#include "lockstep/losses/mean_squared_error.hpp"
#include "lockstep/optimizers/sgd.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/strategies/one_device.hpp"
#include "lockstep/training/model.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<5, 2>, ls::Dense<3>, ls::Masking<>, ls::Dense<1>> {};
int main() {
  ls::Model model{Net{}, ls::OneDevice<ls::Reference<float>>{}, ls::MeanSquaredError{}, ls::SGD{}};
  return static_cast<int>(
      model.train_on_batch(ls::global_batch, std::vector<float>(10), std::vector<float>(5)).size());
}
