// expect: lockstep::Kernel: 'Op' has no kernel for device 'D'; include the device's header
#include "lockstep/devices/host/batch_normalization.hpp"
#include "lockstep/devices/host/loss.hpp"
#include "lockstep/devices/host/optimizer.hpp"
#include "lockstep/devices/host/penalty.hpp"
#include "lockstep/devices/reference/dense.hpp"
#include "lockstep/devices/reference/device.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/normalization/batch_normalization.hpp"
#include "lockstep/losses/mean_squared_error.hpp"
#include "lockstep/optimizers/sgd.hpp"
#include "lockstep/strategies/one_device.hpp"
#include "lockstep/training/model.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::Dense<4>, ls::BatchNormalization<>, ls::Dense<1>> {};
int main() {
  ls::Model model{Net{}, ls::OneDevice<ls::Reference<float>>{}, ls::MeanSquaredError{}, ls::SGD{}};
  return static_cast<int>(model.summary().size());
}
