/// \file
#include "lockstep/devices/cpu/denormals.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <limits>
#include <vector>

#include "lockstep/cpu.hpp"
#include "lockstep/optimizers/adam.hpp"
#include "lockstep/reference.hpp"
#include "support/run_optimizer.hpp"

using namespace lockstep;
using namespace testing;

namespace {

constexpr float smallest = std::numeric_limits<float>::min();

// What the compiler does not know it does not compute.
float product(float a, float b) {
  const volatile float x = a;
  return x * b;
}

/// The moments of an optimizer that sees a gradient once and then none.
template <class D, class O>
std::vector<float> moments(const O& optimizer, const D& device) {
  constexpr std::size_t size = 40'003;  // in several threads, and beside whole vectors
  OptimizerRun<D, O> run(optimizer, std::vector<float>(size, 1.0f), device);
  run.apply(std::vector<float>(size, 1e-3f));
  for (int step = 0; step < 1200; ++step) run.apply(std::vector<float>(size));
  return run.slot(0);
}

}  // namespace

TEST_CASE("denormal numbers are 0 while they are flushed, and what they were afterwards") {
  CHECK(product(smallest, 0.5f) > 0);
  {
    const lockstep::detail::FlushDenormalsScope flushes;
    CHECK(product(smallest, 0.5f) == 0);
    CHECK(product(smallest / 2, 2) == 0);
    CHECK(product(smallest, 2) == 2 * smallest);
  }
  CHECK(product(smallest, 0.5f) > 0);
}

TEST_CASE("moments that decay do not become denormal on the CPU") {
  const auto stay_normal = [](const auto& optimizer) {
    for (const float m : moments(optimizer, Reference<float>{})) {
      REQUIRE(m > 0);  // so it must be made to
      REQUIRE(m < smallest);
    }
    for (const int threads : {1, 2})
      for (const float m : moments(optimizer, Cpu{.threads = threads}))
        REQUIRE((m == 0 || m >= smallest));
  };
  stay_normal(Adam{.learning_rate = 0.01});
  CHECK(product(smallest, 0.5f) > 0);
}
