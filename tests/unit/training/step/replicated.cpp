/// \file
/// The default update policy: each replica holds all slots, and all of them are equal.
#include "lockstep/training/step/replicated.hpp"

#include <catch2/catch_test_macros.hpp>
#include <concepts>

#include "unit/training/model_support.hpp"

namespace {

namespace ls = lockstep;
using Device = ls::Reference<double>;
using Many = ls::Mirrored<Device>;

static_assert(std::same_as<ls::detail::UpdateOf<Many>, ls::Replicated::Replica<Device>>);
static_assert(ls::UpdatePolicy<ls::Replicated, Device>);

struct Net : ls::Sequential<ls::Input<2>, ls::Dense<4>, ls::Tanh, ls::Dense<3>> {};

}  // namespace

TEST_CASE("the default policy owns all weights, and all of its state must be equal") {
  ls::Model m{Net{}, Many{.replicas = 3}, ls::SparseCategoricalCrossentropy{.from_logits = true},
              ls::Adam{}};
  for (std::size_t i = 0; i < 3; ++i) CHECK(m.memory(i).optimizer == 2 * 27 * sizeof(double));
  CHECK_THROWS_AS(m.memory(3), ls::UsageError);
  constexpr ls::EqualParts must = ls::Replicated::Replica<Device>::must_be_equal();
  CHECK((must.weights && must.optimizer));
}
