// expect: lockstep::Recompute: a kernel of the block updates state or exchanges data, and would do
// so twice; skip this in the kernel if io.step.is_recompute is true, and set its
// 'handles_recompute' to true
#include "lockstep/layers/layers.hpp"
#include "lockstep/model/plan.hpp"
#include "lockstep/model/recompute.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;
struct CountOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  bool operator==(const CountOp&) const = default;
};
struct Count : ls::ParameterlessLayer<CountOp> {
  static constexpr std::string_view name = "count";
};
template <>
struct ls::Kernel<CountOp, ls::Reference<float>> : ls::KernelTraits {
  static constexpr bool updates_state(const CountOp&) { return true; }
};
struct Net : ls::Sequential<ls::Input<8>, ls::Recompute<ls::Sequential<Count, ls::Dense<3>>>> {};
constexpr auto& late = ls::detail::PlanOf<Net, ls::Reference<float>>::plan;
