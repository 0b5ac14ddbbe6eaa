#include "distributed/golden.hpp"
#include "lockstep/cpu.hpp"
#include "lockstep/elastic.hpp"

using namespace distributed;

namespace {

/// The example of docs/elastic.md; elastic.cpp tests what it does.
[[maybe_unused]] auto elastic() {
  // --8<-- [start:elastic]
  const ls::MultiWorkerMirrored<ls::Cpu, ls::Tcp, ls::Elastic> strategy{
      .virtual_shards = 8, .elastic = {.min_workers = 2}};
  // --8<-- [end:elastic]
  return strategy;
}

}  // namespace

TEST_CASE(
    "one to four workers of one or two replicas on Cpu train the small CNN as one device does, and "
    "as Keras") {
  golden::meets_small_cnn<ls::Cpu>(WorkersCheck<ls::Cpu>{});
}
