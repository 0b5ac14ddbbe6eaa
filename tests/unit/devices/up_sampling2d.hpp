/// \file
/// UpSampling2D test cases for every device. `Tested` comes from the device's compare.hpp, which
/// must be included first.
#pragma once

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>

#include "lockstep/layers/reshaping/up_sampling2d.hpp"
#include "support/kernel_numbers.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("upsampling of generated shapes agrees with the reference") {
  Philox g(35);
  for (int i = 0; i < 2 * Tested::shapes; ++i) {
    const UpSampling2DOp op{shape(between(g, 1, 20), between(g, 1, 20), between(g, 1, 20)),
                            {between(g, 1, 4), between(g, 1, 4)},
                            i % 2 == 0 ? nearest : bilinear};
    INFO(to_string(op.in) << " to " << to_string(op.out())
                          << (op.interpolation == bilinear ? ", bilinear" : ""));
    const auto count = static_cast<std::size_t>(between(g, Tested::least_count, 5));
    Tested::check(op, count, numbers(op, op.in.size(), 0, count));
  }
}
