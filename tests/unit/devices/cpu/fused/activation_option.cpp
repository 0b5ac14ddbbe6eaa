/// \file
/// An activation given as an option of a layer is fused like an activation layer.
#include "lockstep/layers/activation_option.hpp"

#include <catch2/catch_test_macros.hpp>

#include "lockstep/cpu.hpp"
#include "lockstep/lockstep.hpp"

namespace ls = lockstep;

namespace {

struct Joined : ls::Sequential<ls::Input<8, 8, 2>, ls::Conv2D<3, 3, ls::relu>, ls::Flatten,
                               ls::Dense<5, ls::relu>, ls::Dense<5, ls::tanh>> {};
struct Apart : ls::Sequential<ls::Input<8, 8, 2>, ls::Conv2D<3, 3>, ls::ReLU, ls::Flatten,
                              ls::Dense<5>, ls::ReLU, ls::Dense<5>, ls::Tanh> {};
template <class Net>
constexpr int steps = ls::detail::PlanOf<Net, ls::Cpu>::plan.steps;

}  // namespace

TEST_CASE("activations as options and as layers give plans with equally many steps") {
  STATIC_REQUIRE(steps<Joined> == 4);
  STATIC_REQUIRE(steps<Joined> == steps<Apart>);
}
