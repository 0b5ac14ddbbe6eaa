/// \file
/// bfloat16 test cases for every device, of layers without matrix products. `Tested` comes from the
/// device's compare.hpp, which must be included first.
#pragma once

#include <catch2/catch_template_test_macros.hpp>

#include "lockstep/layers/layers.hpp"
#include "support/bfloat16_layers.hpp"
#include "support/branches.hpp"

using namespace lockstep;
using namespace testing;

TEMPLATE_TEST_CASE("activations in bfloat16 agree with the reference, also far from zero", "", ReLU,
                   ReLU6, LeakyReLU<>, ELU, GELU, SiLU, Softplus) {
  activates_in_bfloat16<Tested, TestType>();
}
TEMPLATE_TEST_CASE("gradients computed from y use y as it is stored", "", Sigmoid, Tanh) {
  takes_gradients_from_stored_results<Tested, TestType>();
}
TEMPLATE_TEST_CASE("softmax and log-softmax in bfloat16 agree with the reference", "", Softmax,
                   LogSoftmax) {
  takes_softmax_in_bfloat16<Tested, TestType>();
}
TEST_CASE("pooling in bfloat16 agrees with the reference, even where windows overlap") {
  pools_in_bfloat16<Tested>();
}
TEST_CASE("merges in bfloat16 agree with the reference") {
  joins_branches_in_bfloat16<Tested>();
}
TEST_CASE("normalizations in bfloat16 keep their statistics in float") {
  normalizes_in_bfloat16<Tested>();
}
TEST_CASE("layer normalization in bfloat16 sums its weight gradients in float") {
  normalizes_layers_in_bfloat16<Tested>();
}
TEST_CASE("upsampling and rearrangements in bfloat16 agree with the reference") {
  moves_elements_in_bfloat16<Tested>();
}
TEST_CASE("an embedding as first layer reads indices that bfloat16 cannot represent") {
  embeds_unrounded_numbers<Tested>();
}
