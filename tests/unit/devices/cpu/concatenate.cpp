/// \file
/// Concatenate on the Cpu, compared with the reference.
#include "lockstep/layers/merging/concatenate.hpp"

#include "compare.hpp"
#include "support/branches.hpp"

TEST_CASE("concatenations of generated shapes agree with the reference") {
  testing::concatenates_branches<testing::Tested>();
}

TEST_CASE("concatenations of any number of values along any axis move each element on the CPU") {
  testing::concatenates_many(lockstep::CpuBFloat16{.threads = 2});
}
