/// \file
/// Compares a kernel of the Cuda device with the same kernel of Reference<double> on the same
/// numbers.
#pragma once

#include <array>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>

#include "lockstep/cuda.hpp"
#include "lockstep/reference.hpp"
#include "support/kernel_numbers.hpp"
#include "support/test_gpu.hpp"

namespace testing {

inline constexpr double tolerance =
    1e-5;  ///< of the norm of a tensor's error, relative to the norm of the tensor
/// Each shape is another text to compile.
inline constexpr int generated_shapes = 12;

/// Result and gradients, with and without dx. `floor`: gradients with a smaller norm are compared
/// by absolute error, for saturated functions.
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
    if (lockstep::detail::has_gradient(op, 1))
      CHECK(relative_error(result.dx2, expected.dx2) < tolerance);
    CHECK(relative_error(result.dw, expected.dw) < tolerance);
  }
}

/// The number of shapes for float16.
inline constexpr double float16_tolerance = half_tolerance / 8;

/// Compares D, in mixed precision, with Reference<double>. Activations are rounded for both; for
/// the reference also the first `rounded_weights`, which the kernel rounds itself. All other
/// roundings count as errors.
template <class D, class O>
void check_mixed(const O& op, std::size_t count, Numbers n, std::size_t rounded_weights,
                 double floor, double allowed, double dw_allowed) {
  using A = lockstep::ActivationOf<D>;
  TestGpu gpu;
  n.x = rounded<A>(n.x);
  n.x2 = rounded<A>(n.x2);
  n.dy = rounded<A>(n.dy);
  Numbers reference = n;
  for (std::size_t i = 0; i < rounded_weights; ++i) reference.w[i] = A(n.w[i]);
  for (const bool want_dx : {true, false}) {
    INFO("examples " << count << ", dx wanted " << want_dx);
    const auto expected = run<lockstep::Reference<double>>(op, count, reference, {}, want_dx);
    const auto result = run<D>(op, count, n, {}, want_dx);
    const double size = norm(as<float>(expected.dx));
    CHECK(relative_error(result.y, expected.y) < allowed);
    CHECK(relative_error(result.dx, expected.dx) * (size < floor ? size / floor : 1) < allowed);
    if (lockstep::detail::has_gradient(op, 1))
      CHECK(relative_error(result.dx2, expected.dx2) < allowed);
    CHECK(relative_error(result.dw, expected.dw) < dw_allowed);
  }
}

template <class O>
void check_in_bfloat16(const O& op, std::size_t count, const Numbers& n,
                       std::size_t rounded_weights = 0, double floor = 0,
                       double allowed = half_tolerance, double dw_allowed = half_dw_tolerance) {
  check_mixed<lockstep::CudaBFloat16>(op, count, n, rounded_weights, floor, allowed, dw_allowed);
}
template <class O>
void check_in_float16(const O& op, std::size_t count, const Numbers& n, double floor = 0,
                      double dw_allowed = half_dw_tolerance) {
  check_mixed<lockstep::CudaFloat16>(op, count, n, 0, floor, float16_tolerance, dw_allowed);
}

/// This folder's device, for test cases that devices share.
struct Tested {
  using Device = lockstep::Cuda;
  using Half = lockstep::CudaBFloat16;
  using Machine =
      TestGpu;  ///< must live while a device is used; `check` and `check_half` create their own
  /// Tolerances for an activation, its gradient, and a softmax over one class.
  static constexpr double activation_error = 1e-6, slope_error = 2e-6, one_class_error = 0;
  /// Relative bound for GELU, also far below 0.
  static constexpr double gelu_error = 2e-5;
  /// Absolute error of log-softmax where one class dominates and the result is near 0.
  static constexpr double log_softmax_error = 3e-7;
  static constexpr int shapes = generated_shapes, half_shapes = 6, least_count = 0;
  static constexpr bool has_all_gradients = false, has_reference_kernels = false;
  static Device device() { return {}; }
  static std::array<Device, 1> devices() { return {}; }
  static Half half() { return {}; }
  static void need_half() {}
  static bool has_half() { return true; }
  template <class O>
  static void check(const O& op, std::size_t count, const Numbers& n, double floor = 0) {
    check_against_reference(op, count, n, floor);
  }
  template <class O>
  static void check_half(const O& op, std::size_t count, const Numbers& n,
                         std::size_t rounded_weights = 0, double floor = 0) {
    check_in_bfloat16(op, count, n, rounded_weights, floor);
  }
};

}  // namespace testing
