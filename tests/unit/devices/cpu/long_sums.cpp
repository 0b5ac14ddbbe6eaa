#include "unit/devices/long_sums.hpp"

#include "lockstep/cpu.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;

TEST_CASE("sums over examples and pixels lose less than 1e-6 of their magnitude on the Cpu") {
  for (const int threads : {1, 2}) long_sums::check(96, 7, ls::Cpu{.threads = threads});
}

TEST_CASE("sums over examples and pixels lose less than 1e-6 on the reference in float") {
  long_sums::check(64, 4, ls::Reference<float>{});
}

TEST_CASE("sums of ten million terms lose less than 1e-6 of their magnitude", "[.slow]") {
  for (const int threads : {1, 2}) long_sums::check(128, 610, ls::Cpu{.threads = threads});
}
