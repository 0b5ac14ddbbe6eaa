// expect: lockstep::InBlocks: device 'D' does not compute the output in blocks; leave out InBlocks,
// or use ls::Cpu
#include "lockstep/layers/dense.hpp"
#include "lockstep/losses/mean_squared_error.hpp"
#include "lockstep/model/in_blocks.hpp"
#include "lockstep/optimizers/sgd.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/strategies/one_device.hpp"
#include "lockstep/training/model.hpp"

namespace ls = lockstep;
struct Distant : ls::Reference<float> {
  static constexpr bool is_host = false;
};
struct Net : ls::Sequential<ls::Input<4>, ls::InBlocks<ls::Dense<3>>> {};
int main() {
  ls::Model model{Net{}, ls::OneDevice<Distant>{}, ls::MeanSquaredError{}, ls::SGD{}};
  return static_cast<int>(model.summary().size());
}
