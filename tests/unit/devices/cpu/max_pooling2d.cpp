/// \file
/// Max pooling on the Cpu: the shared cases.
#include "lockstep/layers/pooling/max_pooling2d.hpp"

#include "compare.hpp"
#include "support/pooling.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("max pooling of generated windows agrees with the reference") {
  pools_generated_windows<Tested, MaxPooling2DOp>();
}
TEST_CASE("max pooling on two threads equals that on one") {
  const auto op = MaxPooling2D<>::op(shape(26, 26, 32));
  check_against_reference(op, 7, numbers(op, op.window.in.size(), 0, 7));
}
TEST_CASE("among equal maxima the first gets the whole gradient, in every channel") {
  gives_the_gradient_to_the_first_maximum<Tested>();
}
TEST_CASE("padding never wins, even among negative numbers") {
  pools_negative_numbers_with_padding<Tested>();
}
TEST_CASE("a window of more than 256 taps saves its winner") {
  keeps_the_winner_of_many_taps<Tested>();
}
