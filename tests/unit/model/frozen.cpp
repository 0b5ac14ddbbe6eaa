#include "lockstep/model/frozen.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <vector>

#include "unit/model/frozen_nets.hpp"
#include "unit/model/toy_device.hpp"

namespace {

namespace ls = lockstep;
using namespace frozen_nets;

}  // namespace

TEST_CASE("frozen layers leave the gradients of the others as they are") {
  all_nets_give_the_gradients_of_all<ls::Reference<double>>();
  all_nets_give_the_gradients_of_all<ls::Reference<float>>();
}

TEST_CASE("backward ends where no weight trains, and needs no memory there") {
  using Net = Nets<Frozen>::Backbone;
  using All = Nets<Trained>::Backbone;
  constexpr auto& plan = ls::detail::PlanOf<Net, ls::Reference<float>>::plan;
  constexpr auto& all = ls::detail::PlanOf<All, ls::Reference<float>>::plan;
  STATIC_REQUIRE(plan.buckets == 1);
  STATIC_REQUIRE(plan.bucket[0].end == Net::graph.weights);
  STATIC_REQUIRE(plan.arena < all.arena);
  for (const auto& s : plan.step) {
    if (s.out == ls::detail::ValueId::batch) continue;
    CHECK(s.runs_backward() == (s.name == "dense"));
    CHECK(!s.wants_dx);
  }
  // Frozen layers are numbered and named as others; their parameters follow the other state.
  CHECK(Net::graph.trained_state == 0);
  CHECK(Net::graph.state == All::graph.weights - Net::graph.weights);
}

TEST_CASE("a frozen normalization has the gradient of a constant affine map") {
  using Net = Normalized<Frozen>;
  using Device = ls::Reference<double>;
  const std::vector<double> state = some_state<Net>();
  toy::Machine<Net, Device> machine(3);
  machine.engine.state().upload(state.data());
  const std::vector<double> found = machine.gradients(), expected = machine.numeric_gradients();
  for (std::size_t i = 0; i < found.size(); ++i)
    CHECK(std::abs(found[i] - expected[i]) < 1e-7 * (1 + std::abs(expected[i])));
  std::vector<double> after(state.size());
  machine.engine.state().download(after.data());
  CHECK(after == state);

  has_gradients<Normalized<Again>, Device>(found, 1e-15);
}
