/// \file
/// Attention on the reference device.
#include "lockstep/reference.hpp"
#include "unit/devices/attention.hpp"

using lockstep::Reference;

TEST_CASE("attention of generated shapes has the result and the gradients of its formula") {
  testing::attention::check_generated(Reference<double>{}, 50, 33, 1e-12);
}
TEST_CASE("scores of -infinity give NaN, no key gives 0") {
  testing::attention::check_infinite_scores(Reference<double>{});
}
TEST_CASE("dropout of attention does nothing in evaluation") {
  testing::attention::check_evaluation(Reference<float>{});
}
