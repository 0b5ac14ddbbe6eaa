#include "distributed/golden.hpp"
#include "lockstep/cpu.hpp"

using namespace distributed;

TEST_CASE(
    "one to four workers of one or two replicas on Cpu train the small CNN as one device does, and "
    "as Keras") {
  golden::meets_small_cnn<ls::Cpu>(WorkersCheck<ls::Cpu>{});
}
