/// \file
/// The declaration of PReLU; the golden tests check its numbers.
#include "lockstep/layers/activations/prelu.hpp"

#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "lockstep/layers/layers.hpp"
#include "lockstep/model/sequential.hpp"
#include "lockstep/training/checks/describe_layers.hpp"

namespace ls = lockstep;

TEST_CASE("PReLU's alpha has Keras' name and shape, and the rules given for it") {
  struct Net : ls::Sequential<ls::Input<4, 3, 2>, ls::PReLU<>,
                              ls::PReLU<ls::alpha_initializer(ls::ConstantValue{0.25}),
                                        ls::alpha_regularizer(ls::L2{0.5}), ls::shared_axes(1, 2)>,
                              ls::PReLU<ls::shared_axes(3)>> {};
  const auto infos = ls::detail::parameters_of<Net>();
  REQUIRE(infos.size() == 3);
  CHECK(infos[0].name == "p_re_lu/alpha");
  CHECK(infos[0].shape == ls::shape(4, 3, 2));
  CHECK(infos[1].shape == ls::shape(1, 1, 2));
  CHECK(infos[2].shape == ls::shape(4, 3, 1));
  CHECK(!Net::graph.parameter[0].penalty);
  CHECK(Net::graph.parameter[1].penalty == ls::Penalty{0, 0.5});
  std::vector<double> weights(Net::trainable_count);
  ls::detail::initialize_parameters<Net, double>(1, weights, {});
  for (std::size_t i = 0; i < weights.size(); ++i)
    CHECK(weights[i] == (i >= 24 && i < 26 ? 0.25 : 0));
}

TEST_CASE("the signature covers the shared axes of PReLU") {
  struct Net : ls::Sequential<ls::Input<4, 3, 2>, ls::PReLU<ls::shared_axes(1, 2)>> {};
  CHECK(ls::detail::describe_layers<Net>() ==
        "p_re_lu (shared_axes (1, 2)) to (4, 3, 2), alpha (1, 1, 2)");
}
