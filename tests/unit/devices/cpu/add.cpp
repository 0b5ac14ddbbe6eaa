/// \file
/// Add on the Cpu, compared with the reference.
#include "lockstep/layers/merging/add.hpp"

#include "compare.hpp"
#include "support/branches.hpp"

TEST_CASE("sums of generated shapes agree with the reference") {
  testing::adds_branches<testing::Tested>();
}
