/// \file
/// Add on the Cpu, compared with the reference.
#include "lockstep/layers/merging/add.hpp"

#include "compare.hpp"
#include "support/branches.hpp"

TEST_CASE("sums of generated shapes agree with the reference") {
  testing::adds_branches<testing::Tested>();
}

TEST_CASE("merges of any number of values are plain loops on the CPU") {
  testing::merges_many(lockstep::Cpu{.threads = 2}, 1e-6);
  testing::merges_many(lockstep::CpuBFloat16{.threads = 2}, testing::half_tolerance);
}
