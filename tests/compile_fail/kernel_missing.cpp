// expect: lockstep::Kernel: 'Op' has no kernel for device 'D'; include the device's header
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/sources/tensors.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/losses/mean_squared_error.hpp"
#include "lockstep/optimizers/sgd.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/strategies/one_device.hpp"
#include "lockstep/training/model.hpp"

namespace ls = lockstep;
struct SquareOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  bool operator==(const SquareOp&) const = default;
};
struct Square : ls::ParameterlessLayer<SquareOp> {
  static constexpr std::string_view name = "square";
};
struct Net : ls::Sequential<ls::Input<8>, ls::Dense<1>, Square> {};
int main() {
  ls::Model model{Net{}, ls::OneDevice<ls::Reference<float>>{}, ls::MeanSquaredError{}, ls::SGD{}};
  return static_cast<int>(model.summary().size());
}
