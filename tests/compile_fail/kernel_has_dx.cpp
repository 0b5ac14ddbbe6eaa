// expect: lockstep::Kernel: Kernel<Op, D>::has_dx cannot be called; write 'static constexpr bool
// has_dx(const Op&)'
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
template <ls::HostDevice D>
struct ls::Kernel<SquareOp, D> : ls::KernelTraits {
  static constexpr bool has_dx = false;
  static void forward(const SquareOp&, const ls::Io<D>&) {}
  static void backward(const SquareOp&, const ls::Io<D>&) {}
};
struct Net : ls::Sequential<ls::Input<8>, ls::Dense<1>, Square> {};
int main() {
  ls::Model model{Net{}, ls::OneDevice<ls::Reference<float>>{}, ls::MeanSquaredError{}, ls::SGD{}};
  return static_cast<int>(model.summary().size());
}
