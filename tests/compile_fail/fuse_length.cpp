// expect: lockstep::Fuse: a rule fuses two to eight ops; split it
#include "lockstep/layers/activations/relu.hpp"
#include "lockstep/model/plan.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;
struct LoneOp {
  ls::ReLUOp relu;
  constexpr ls::Shape out() const { return relu.out(); }
  bool operator==(const LoneOp&) const = default;
};
struct Device : ls::Reference<float> {
  using fusions = ls::List<ls::Fuse<LoneOp, ls::ReLUOp>>;
};
template <>
struct ls::Kernel<LoneOp, Device> : ls::KernelTraits {};
template <>
struct ls::Kernel<ls::ReLUOp, Device> : ls::KernelTraits {};
struct Net : ls::Sequential<ls::Input<8>, ls::ReLU> {};
constexpr auto& late = ls::detail::PlanOf<Net, Device>::plan;
