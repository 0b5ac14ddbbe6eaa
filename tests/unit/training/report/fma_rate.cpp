#include "lockstep/training/report/fma_rate.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>

namespace {

namespace ls = lockstep;
using ls::detail::fma_rate;
using Body = ls::FunctionRef<void()>;

}  // namespace

TEST_CASE("the rate of multiply-adds is that of a processor's vectors") {
  const double rate = fma_rate(false, 1, [](Body body) { body(); });
  CHECK(rate > 1e9);   // 4 lanes x 2 operations at 0.5 GHz, far below any core
  CHECK(rate < 1e12);  // 2 units x 16 lanes x 2 operations at 10 GHz are 0.64e12
  const double in_double = fma_rate(true, 1, [](Body body) { body(); });
  CHECK(in_double > 1e9);
  CHECK(in_double < 0.5e12);
}

TEST_CASE("each thread runs the loop in each round, and its operations are counted") {
  // A fourfold call in one thread takes four times as long as the operations that are counted.
  std::size_t calls = 0;
  const double four = fma_rate(false, 4, [&](Body body) {
    for (int i = 0; i < 4; ++i) body();
    ++calls;
  });
  CHECK(calls == 10);
  CHECK(four > 1e9);
  CHECK(four < 1e12);
}

TEST_CASE("the loop of multiply-adds computes its fixed point") {
  const auto loop = ls::detail::widest_fma_loop();
  const double in_float = loop.in_float(100, 1), in_double = loop.in_double(100, 1);
  CHECK(std::abs(in_float - 12 * static_cast<double>(loop.bytes / sizeof(float)) / 2) < 1e-3);
  CHECK(std::abs(in_double - 12 * static_cast<double>(loop.bytes / sizeof(double)) / 2) < 1e-9);
  CHECK(loop.in_float(0, 1) > in_float);  // the starts are above it
}
