/// \file
/// A kernel of the Cuda device beside the same kernel of Reference<double>, over the same numbers.
#pragma once

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>

#include "lockstep/cuda.hpp"
#include "lockstep/reference.hpp"
#include "support/kernel_numbers.hpp"
#include "support/test_gpu.hpp"

namespace testing {

inline constexpr double tolerance =
    1e-5;  ///< of the norm of a tensor's error, relative to that of the tensor
/// Each shape is a text of its own to compile.
inline constexpr int generated_shapes = 12;

/// Result and gradients, with and without dx. `floor`: gradients smaller than this norm are judged
/// by their absolute error, as where a function is saturated.
template <class O>
void check_against_reference(const O& op, std::size_t count, const Numbers& n, double floor = 0) {
  TestGpu gpu;
  for (const bool want_dx : {true, false}) {
    INFO("examples " << count << ", dx wanted " << want_dx);
    const auto expected = run<lockstep::Reference<double>>(op, count, n, {}, want_dx);
    const auto result = run<lockstep::Cuda>(op, count, n, {}, want_dx);
    const double size = norm(as<float>(expected.dx));
    CHECK(relative_error(result.y, expected.y) < tolerance);
    CHECK(relative_error(result.dx, expected.dx) * (size < floor ? size / floor : 1) < tolerance);
    CHECK(relative_error(result.dx2, expected.dx2) < tolerance);
    CHECK(relative_error(result.dw, expected.dw) < tolerance);
  }
}

}  // namespace testing
