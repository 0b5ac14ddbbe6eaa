/// \file
#include "lockstep/layers/merging/dot.hpp"

#include "support/branches.hpp"
#include "unit/devices/cuda/compare.hpp"

TEST_CASE("dot products of generated shapes agree with the reference") {
  testing::multiplies_branches<testing::Tested>();
}
