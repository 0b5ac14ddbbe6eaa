/// \file
#include "lockstep/layers/merging/concatenate.hpp"

#include "support/branches.hpp"
#include "unit/devices/cuda/compare.hpp"

TEST_CASE("concatenations of generated shapes agree with the reference") {
  testing::concatenates_branches<testing::Tested>();
}

TEST_CASE("concatenations of any number of values along any axis move each element on a GPU") {
  testing::TestGpu gpu;
  testing::concatenates_many(lockstep::Cuda{});
}
