#include "lockstep/model/recompute.hpp"

#include <catch2/catch_test_macros.hpp>

#include "lockstep/cpu.hpp"
#include "unit/layers/resnet.hpp"
#include "unit/model/toy_device.hpp"

namespace {

namespace ls = lockstep;

/// A residual network whose blocks are Block<...>.
template <template <class...> class Block>
struct Nets {
  template <int F>
  struct Next : Block<resnet::Next<F>> {};
  struct Net : ls::Sequential<ls::Input<16, 16, 3>, resnet::Conv<16, 3>, resnet::Norm, ls::ReLU,
                              ls::Repeat<3, Next<16>>, Block<resnet::First<32, 2>>,
                              ls::Repeat<2, Next<32>>, ls::GlobalAveragePooling2D, ls::Dense<10>> {
  };
};
template <class... Layers>
using RecomputeAll = ls::Recompute<ls::Sequential<Layers...>>;
using Kept = Nets<ls::Sequential>::Net;
using Again = Nets<RecomputeAll>::Net;

}  // namespace

TEST_CASE("recomputed residual blocks give equal bits in less memory on the Cpu") {
  constexpr auto& kept = ls::detail::PlanOf<Kept, ls::Cpu>::plan;
  constexpr auto& again = ls::detail::PlanOf<Again, ls::Cpu>::plan;
  static_assert(kept.steps == again.steps && again.arena < kept.arena);
  toy::Machine<Kept, ls::Cpu> a(6);
  toy::Machine<Again, ls::Cpu> b(6);
  CHECK(a.forward() == b.forward());
  CHECK(a.gradients() == b.gradients());
}
