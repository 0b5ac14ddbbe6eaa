/// \file
/// The scope that flushes denormals, and optimizers under it.
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

// Hides the value from the compiler, which would otherwise fold the computation.
float product(float a, float b) {
  const volatile float x = a;
  return x * b;
}

/// The moments of an optimizer after one gradient followed by zeros.
template <class D, class O>
std::vector<float> moments(const O& optimizer, const D& device) {
  constexpr std::size_t size = 40'003;  // several threads, and a remainder after whole vectors
  OptimizerRun<D, O> run(optimizer, std::vector<float>(size, 1.0f), device);
  run.apply(std::vector<float>(size, 1e-3f));
  for (int step = 0; step < 1200; ++step) run.apply(std::vector<float>(size));
  return run.slot(0);
}

}  // namespace

TEST_CASE("denormals are 0 inside of the scope, and computed as before afterwards") {
  CHECK(product(smallest, 0.5f) > 0);
  {
    const lockstep::detail::FlushDenormalsScope flushes;
    CHECK(product(smallest, 0.5f) == 0);
    CHECK(product(smallest / 2, 2) == 0);
    CHECK(product(smallest, 2) == 2 * smallest);
  }
  CHECK(product(smallest, 0.5f) > 0);
}

TEST_CASE("decaying moments do not become denormal on the CPU") {
  const auto stay_normal = [](const auto& optimizer) {
    for (const float m : moments(optimizer, Reference<float>{})) {
      REQUIRE(m > 0);  // without the scope, the moment stays denormal for ever
      REQUIRE(m < smallest);
    }
    for (const int threads : {1, 2})
      for (const float m : moments(optimizer, Cpu{.threads = threads}))
        REQUIRE((m == 0 || m >= smallest));
  };
  stay_normal(Adam{.learning_rate = 0.01});
  CHECK(product(smallest, 0.5f) > 0);
}
