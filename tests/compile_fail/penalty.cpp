// expect: lockstep::Penalty: the device has no kernel for regularizers
#include "lockstep/devices/host/loss.hpp"
#include "lockstep/devices/host/optimizer.hpp"
#include "lockstep/devices/reference/dense.hpp"
#include "lockstep/devices/reference/device.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/regularizers.hpp"
#include "lockstep/losses/mean_squared_error.hpp"
#include "lockstep/optimizers/sgd.hpp"
#include "lockstep/strategies/one_device.hpp"
#include "lockstep/training/model.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::Dense<1, ls::kernel_regularizer(ls::L2{1e-4})>> {};
int main() {
  ls::Model model{Net{}, ls::OneDevice<ls::Reference<float>>{}, ls::MeanSquaredError{}, ls::SGD{}};
  return static_cast<int>(model.summary().size());
}
