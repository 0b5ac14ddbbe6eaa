/// \file
#include "lockstep/layers/reshaping/rearrangement.hpp"

#include "support/rearrangements.hpp"
#include "unit/devices/cuda/compare.hpp"

using namespace lockstep;
using namespace testing;

namespace {

/// Elements of one example of x.
std::size_t size_of_input(const auto& op) {
  if constexpr (requires { op.in; })
    return op.in.size();
  else
    return op.op.in.size();
}

}  // namespace

TEST_CASE("rearrangements of generated shapes agree with the reference") {
  Philox g(34);
  for (int i = 0; i < 4; ++i) {
    const auto count = static_cast<std::size_t>(between(g, i % 2, 5));
    const auto check = [&](const auto& op) {
      INFO("to " << to_string(op.out()));
      check_against_reference(op, count, numbers(op, size_of_input(op), 0, count));
    };
    rearranged_images(g, shape(between(g, 1, 20), between(g, 1, 20), one_of(g, 1, 3, 8, 17)),
                      check);
    other_rearrangements(g, between(g, 1, 9), one_of(g, 1, 3, 70), check);
  }
}
