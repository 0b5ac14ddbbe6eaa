// expect: lockstep::Kernel: 'Op' has no kernel for device 'D'; include the device's header
#include "lockstep/layers/dense.hpp"
#include "lockstep/optimizers/sgd.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/strategies/one_device.hpp"
#include "lockstep/training/model.hpp"

namespace ls = lockstep;
struct SumOp {};
struct Sum {
  using target_type = float;
  static constexpr std::string_view name = "sum";
  static constexpr bool accepts(ls::Shape) { return true; }
  static constexpr ls::Shape target_shape(ls::Shape out) { return out; }
  constexpr SumOp op(ls::Shape) const { return {}; }
};
struct Net : ls::Sequential<ls::Input<8>, ls::Dense<1>> {};
int main() {
  ls::Model model{Net{}, ls::OneDevice<ls::Reference<float>>{}, Sum{}, ls::SGD{}};
  return static_cast<int>(model.summary().size());
}
