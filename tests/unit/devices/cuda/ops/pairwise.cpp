/// \file
#include "lockstep/layers/merging/pairwise.hpp"

#include "support/branches.hpp"
#include "unit/devices/cuda/compare.hpp"

TEST_CASE("element-by-element merges of generated shapes agree with the reference") {
  testing::merges_branches<testing::Tested>();
}
