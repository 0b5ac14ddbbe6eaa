/// \file
/// Concatenate on the Cpu, compared with the reference.
#include "lockstep/layers/merging/concatenate.hpp"

#include "compare.hpp"
#include "support/branches.hpp"

TEST_CASE("concatenations of generated shapes agree with the reference") {
  testing::concatenates_branches<testing::Tested>();
}
