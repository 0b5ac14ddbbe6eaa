// expect: lockstep::Model: the loss does not depend on the weights of 'TheOp': nothing reads its
// result, or only as a mask; remove the layer, or write ls::Frozen<Layer>
#include "lockstep/layers/layers.hpp"
#include "lockstep/model/frozen.hpp"
#include "lockstep/model/plan.hpp"
#include "lockstep/model/statement_graph.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;
struct MaskedOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  constexpr bool has_gradient(std::size_t operand) const { return operand == 0; }
  bool operator==(const MaskedOp&) const = default;
};
struct Masked {
  static constexpr std::string_view name = "masked";
  static constexpr bool accepts(ls::Shape a, ls::Shape mask) { return a == mask; }
  static constexpr MaskedOp op(ls::Shape a, ls::Shape) { return {a}; }
};
template <>
struct ls::Kernel<MaskedOp, ls::Reference<float>> : ls::KernelTraits {};
template <class Mask>
struct Net
    : ls::Graph<ls::In<"x", 4>, ls::Let<"a", ls::From<"x">, ls::Dense<4>>,
                ls::Let<"mask", ls::From<"x">, Mask>, ls::Out<"y", ls::From<"a", "mask">, Masked>> {
};
using Sound = Net<ls::Frozen<ls::Dense<4>>>;
using Late = Net<ls::Dense<4>>;
constexpr auto& sound = ls::detail::PlanOf<Sound, ls::Reference<float>>::plan;
constexpr auto& late = ls::detail::PlanOf<Late, ls::Reference<float>>::plan;
