// expect: lockstep::InBlocks: 'X', the loss or a metric, does not compute each row of the output
// alone; leave out InBlocks, or use one that does
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/in_blocks.hpp"
#include "lockstep/optimizers/sgd.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/strategies/one_device.hpp"
#include "lockstep/training/model.hpp"

namespace ls = lockstep;
/// The distance between the examples of a batch.
struct SpreadOp {
  std::size_t elements = 1;
};
struct Spread {
  using target_type = float;
  static constexpr std::string_view name = "spread";
  static constexpr bool accepts(ls::Shape out) { return out.rank == 1; }
  static constexpr ls::Shape target_shape(ls::Shape out) { return out; }
  static constexpr SpreadOp op(ls::Shape out) { return {out.size()}; }
};
template <>
struct ls::Kernel<SpreadOp, ls::Reference<float>> : ls::KernelTraits {
  static void run(const SpreadOp&, const ls::LossIo<ls::Reference<float>, float>&) {}
};
struct Net : ls::Sequential<ls::Input<4>, ls::InBlocks<ls::Dense<3>>> {};
int main() {
  ls::Model model{Net{}, ls::OneDevice<ls::Reference<float>>{}, Spread{}, ls::SGD{}};
  return static_cast<int>(model.summary().size());
}
