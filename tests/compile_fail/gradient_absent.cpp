// expect: lockstep::Kernel: 'TheOp' cannot compute the gradient of its input on device 'D'; put it
// before all layers with weights
#include "lockstep/layers/layers.hpp"
#include "lockstep/model/plan.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;
struct LookUpOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  bool operator==(const LookUpOp&) const = default;
};
struct LookUp : ls::ParameterlessLayer<LookUpOp> {
  static constexpr std::string_view name = "look_up";
};
template <>
struct ls::Kernel<LookUpOp, ls::Reference<float>> : ls::KernelTraits {
  static constexpr bool has_dx(const LookUpOp&) { return false; }
};
struct First : ls::Sequential<ls::Input<8>, LookUp, ls::Dense<3>> {};
struct Late : ls::Sequential<ls::Input<8>, ls::Dense<3>, LookUp> {};
constexpr auto& sound = ls::detail::PlanOf<First, ls::Reference<float>>::plan;
constexpr auto& late = ls::detail::PlanOf<Late, ls::Reference<float>>::plan;
