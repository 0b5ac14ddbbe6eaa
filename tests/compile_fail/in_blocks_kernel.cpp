// expect: lockstep::InBlocks: the kernel of the last layer saves data, works in place or exchanges
// data, which a kernel that is called for blocks of rows must not
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/in_blocks.hpp"
#include "lockstep/model/plan.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;
struct Kept : ls::Reference<float> {
  using ls::Reference<float>::Reference;
};
template <>
struct ls::Kernel<ls::DenseOp, Kept> : ls::KernelTraits {
  static constexpr std::size_t saved(const ls::DenseOp&) { return 64; }
};
struct Net : ls::Sequential<ls::Input<4>, ls::InBlocks<ls::Dense<3>>> {};
constexpr auto& late = ls::detail::PlanOf<Net, Kept>::plan;
