/// \file
/// Compares a kernel of the Cpu with the same kernel of Reference<double> on the same inputs.
#pragma once

#include <array>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>

#include "lockstep/cpu.hpp"
#include "lockstep/reference.hpp"
#include "support/bfloat16.hpp"
#include "support/kernel_numbers.hpp"

namespace testing {

/// Norm of a tensor's error relative to the norm of the tensor.
inline constexpr double tolerance = 1e-5;
inline constexpr int generated_shapes = 20;

/// `floor`: dx with a norm below it is compared by absolute error. Where a function is saturated,
/// its gradient, such as 1 - y * y, is a difference of numbers near 1 and has no relative precision
/// in float.
template <class A, class B>
void check_close(const LayerResult<A>& cpu, const LayerResult<B>& other, double floor = 0) {
  CHECK(relative_error(cpu.y, other.y) < tolerance);
  const double size = norm(as<float>(other.dx));
  CHECK(relative_error(cpu.dx, other.dx) * (size < floor ? size / floor : 1) < tolerance);
  CHECK(relative_error(cpu.dx2, other.dx2) < tolerance);
  CHECK(relative_error(cpu.dw, other.dw) < tolerance);
}

/// Compares CpuBFloat16, on one thread and on two, with Reference<double>. Activations are rounded
/// beforehand for both; for the reference so are the first `rounded_weights` weights, which the
/// kernel rounds itself. All other rounding counts as error. `floor`: as in check_close.
template <class O>
void check_in_bfloat16(const O& op, std::size_t count, Numbers n, std::size_t rounded_weights = 0,
                       double floor = 0, double allowed = half_tolerance) {
  n.x = rounded(n.x);
  n.x2 = rounded(n.x2);
  n.dy = rounded(n.dy);
  Numbers reference = n;
  for (std::size_t i = 0; i < rounded_weights; ++i) reference.w[i] = lockstep::bfloat16(n.w[i]);
  for (const bool want_dx : {true, false}) {
    const auto expected = run<lockstep::Reference<double>>(op, count, reference, {}, want_dx);
    for (const int threads : {1, 2}) {
      INFO("threads " << threads << ", examples " << count << ", dx wanted " << want_dx);
      const auto result = run(op, count, n, lockstep::CpuBFloat16{.threads = threads}, want_dx);
      const double size = norm(as<float>(expected.dx));
      CHECK(relative_error(result.y, expected.y) < allowed);
      CHECK(relative_error(result.dx, expected.dx) * (size < floor ? size / floor : 1) < allowed);
      CHECK(relative_error(result.dx2, expected.dx2) < allowed);
      CHECK(relative_error(result.dw, expected.dw) < half_dw_tolerance);
    }
  }
}

/// Compares y and gradients on one thread and on two with Reference<double>.
template <class O>
void check_against_reference(const O& op, std::size_t count, const Numbers& n, bool want_dx = true,
                             double floor = 0) {
  const auto expected = run<lockstep::Reference<double>>(op, count, n, {}, want_dx);
  for (const int threads : {1, 2}) {
    INFO("threads " << threads << ", examples " << count);
    check_close(run(op, count, n, lockstep::Cpu{.threads = threads}, want_dx), expected, floor);
  }
}

/// The Cpu, for the test cases shared by all devices.
struct Tested {
  using Device = lockstep::Cpu;
  using Half = lockstep::CpuBFloat16;
  struct Machine {};
  /// Tolerances for an activation, its gradient, and the softmax of one class.
  static constexpr double activation_error = 1e-6, slope_error = 1e-6, one_class_error = 1e-5;
  /// Relative bound for GELU, also far below 0.
  static constexpr double gelu_error = 1e-6;
  /// Absolute error of log-softmax where one class dominates and the result is near 0.
  static constexpr double log_softmax_error = 0;
  static constexpr int shapes = generated_shapes, half_shapes = 8, least_count = 1;
  static constexpr bool has_all_gradients = true;
  /// Whether random image layers have the kernels of the reference, and so its bits.
  static constexpr bool has_reference_kernels = true;
  static Device device() { return {.threads = 1}; }
  static std::array<Device, 2> devices() { return {{{.threads = 1}, {.threads = 2}}}; }
  static Half half() { return {.threads = 2}; }
  static void need_half() { need_bfloat16(); }
  static bool has_half() { return bfloat16_fault().empty(); }
  template <class O>
  static void check(const O& op, std::size_t count, const Numbers& n, double floor = 0) {
    check_against_reference(op, count, n, true, floor);
  }
  template <class O>
  static void check_half(const O& op, std::size_t count, const Numbers& n,
                         std::size_t rounded_weights = 0, double floor = 0) {
    check_in_bfloat16(op, count, n, rounded_weights, floor);
  }
};

}  // namespace testing
