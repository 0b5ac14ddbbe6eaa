// expect: lockstep::Model: the output has a mask of padded steps, but the kernel of the loss does not
// read weights; multiply by io.weight in the kernel and declare 'weighs' there
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/recurrent/masking.hpp"
#include "lockstep/optimizers/sgd.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/strategies/one_device.hpp"
#include "lockstep/training/model.hpp"

namespace ls = lockstep;
struct SpreadOp {
  std::size_t elements = 1;
};
/// A loss with a kernel of its own, which has positions.
struct Spread {
  using target_type = float;
  static constexpr std::string_view name = "spread";
  static constexpr bool accepts(ls::Shape) { return true; }
  static constexpr ls::Shape target_shape(ls::Shape out) { return out; }
  static constexpr ls::Shape positions(ls::Shape out) { return ls::positions_of(out); }
  static constexpr SpreadOp op(ls::Shape out) { return {out.size()}; }
};
template <>
struct ls::Kernel<SpreadOp, ls::Reference<float>> : ls::KernelTraits {
  static void run(const SpreadOp&, const ls::LossIo<ls::Reference<float>, float>&) {}
};
struct Net : ls::Sequential<ls::Input<5, 2>, ls::Masking<>, ls::Dense<1>> {};
int main() {
  ls::Model model{Net{}, ls::OneDevice<ls::Reference<float>>{}, Spread{}, ls::SGD{}};
  return static_cast<int>(model.summary().size());
}
