/// \file
#include "lockstep/layers/merging/add.hpp"

#include "support/branches.hpp"
#include "unit/devices/cuda/compare.hpp"

TEST_CASE("sums of generated shapes agree with the reference") {
  testing::adds_branches<testing::Tested>();
}
