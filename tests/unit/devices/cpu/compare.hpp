/// \file
/// A kernel of the Cpu device beside the same kernel of Reference<double>, over the same numbers.
#pragma once

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/core/rng.hpp"
#include "lockstep/cpu.hpp"
#include "lockstep/reference.hpp"
#include "support/bfloat16.hpp"
#include "support/run_kernel.hpp"

namespace testing {

inline constexpr double tolerance =
    1e-5;  ///< of the norm of a tensor's error, relative to that of the tensor
inline constexpr int generated_shapes = 50;

/// An integer in [low, high].
inline int between(lockstep::Philox& g, int low, int high) {
  return low + static_cast<int>(g.below(static_cast<std::uint32_t>(high - low + 1)));
}
template <class... Ts>
int one_of(lockstep::Philox& g, Ts... values) {
  const int list[]{values...};
  return list[g.below(sizeof...(values))];
}

/// Numbers for one op, the same in float and double.
struct Numbers {
  std::vector<float> x, w, dy, x2;
};
template <class O>
Numbers numbers(const O& op, std::size_t in, std::size_t weights, std::size_t count,
                double spread = 1) {
  const auto draw = [&](std::size_t n, std::uint64_t key, double scale) {
    auto values = normal_values(n, lockstep::mix(key, n));
    for (double& v : values) v *= scale;
    return as<float>(values);
  };
  return {
      draw(count * in, 1, spread), draw(weights, 2, 1), draw(count * op.out().size(), 3, 1), {}};
}

template <class D, class O>
LayerResult<typename D::real> run(const O& op, std::size_t count, const Numbers& n,
                                  const D& device = {}, bool want_dx = true) {
  using T = typename D::real;
  RunOptions<T> options;
  options.x2 = as<T>(n.x2);
  options.want_dx = want_dx;
  return run_layer<D>(op, count, as<T>(n.x), as<T>(n.w), as<T>(n.dy), options, device);
}

inline double norm(const std::vector<float>& values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum);
}

/// `floor`: gradients smaller than this norm are judged by their absolute error. Where a function
/// is saturated its gradient, as 1 - y * y, is a difference of numbers near 1, and so has no
/// relative precision in float.
template <class A, class B>
void check_close(const LayerResult<A>& cpu, const LayerResult<B>& other, double floor = 0) {
  CHECK(relative_error(cpu.y, other.y) < tolerance);
  const double size = norm(as<float>(other.dx));
  CHECK(relative_error(cpu.dx, other.dx) * (size < floor ? size / floor : 1) < tolerance);
  CHECK(relative_error(cpu.dx2, other.dx2) < tolerance);
  CHECK(relative_error(cpu.dw, other.dw) < tolerance);
}

/// The nearest values that bfloat16 has.
inline std::vector<float> rounded(const std::vector<float>& values) {
  return as<float>(as<lockstep::bfloat16>(values));
}

/// Allowed errors of the norms in mixed precision: of what is stored in bfloat16, which is one
/// rounding of 2^-8 at most, and a little; and of weight gradients, which are sums in float.
inline constexpr double half_tolerance = 4e-3, half_dw_tolerance = 1e-5;

/// CpuBFloat16 beside Reference<double>, on one thread and on two. Activations are rounded before
/// for both; for the reference also the first `rounded_weights`, which the kernel rounds itself.
/// All other roundings are errors. `floor`: as in check_close.
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

/// Result and gradients on one thread and on two.
template <class O>
void check_against_reference(const O& op, std::size_t count, const Numbers& n, bool want_dx = true,
                             double floor = 0) {
  const auto expected = run<lockstep::Reference<double>>(op, count, n, {}, want_dx);
  for (const int threads : {1, 2}) {
    INFO("threads " << threads << ", examples " << count);
    check_close(run(op, count, n, lockstep::Cpu{.threads = threads}, want_dx), expected, floor);
  }
}

}  // namespace testing
