/// \file
#include "lockstep/layers/merging/merge.hpp"

#include "support/branches.hpp"
#include "unit/devices/cuda/compare.hpp"

TEST_CASE("sums of generated shapes agree with the reference") {
  testing::adds_branches<testing::Tested>();
}

TEST_CASE("merges of any number of values are plain loops on a GPU") {
  testing::TestGpu gpu;
  testing::merges_many(lockstep::Cuda{}, 1e-6);
}

TEST_CASE("merges with masks leave out what is padded on a GPU") {
  testing::TestGpu gpu;
  testing::merges_with_masks(lockstep::Cuda{}, 1e-6);
}
