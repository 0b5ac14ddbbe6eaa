/// \file
/// Layers without products of matrices, stored in bfloat16: the cases of every device. `Tested` is
/// that of the compare.hpp that is included before.
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
TEMPLATE_TEST_CASE("gradients from a stored result are those of the result as it is stored", "",
                   Sigmoid, Tanh) {
  takes_gradients_from_stored_results<Tested, TestType>();
}
TEMPLATE_TEST_CASE("softmax and its logarithm in bfloat16 agree with the reference", "", Softmax,
                   LogSoftmax) {
  takes_softmax_in_bfloat16<Tested, TestType>();
}
TEST_CASE("pooling in bfloat16 agrees with the reference, also where windows overlap") {
  pools_in_bfloat16<Tested>();
}
TEST_CASE("joined branches in bfloat16 agree with the reference") {
  joins_branches_in_bfloat16<Tested>();
}
TEST_CASE("normalizations in bfloat16 keep their statistics in float") {
  normalizes_in_bfloat16<Tested>();
}
TEST_CASE("layer normalization in bfloat16 sums its weight gradients in float") {
  normalizes_layers_in_bfloat16<Tested>();
}
TEST_CASE("images made larger in bfloat16 agree with the reference") {
  enlarges_images_in_bfloat16<Tested>();
}
TEST_CASE("an embedding behind the batch reads numbers that bfloat16 cannot hold") {
  embeds_unrounded_numbers<Tested>();
}
