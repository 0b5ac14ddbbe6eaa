/// \file
#include "lockstep/layers/merging/merge.hpp"

#include "lockstep/reference.hpp"
#include "support/branches.hpp"

TEST_CASE("merges of any number of values are plain loops") {
  testing::merges_many(lockstep::Reference<double>{}, 1e-14);
}

TEST_CASE("concatenations of any number of values along any axis move each element") {
  testing::concatenates_many(lockstep::Reference<double>{});
}
