/// \file
/// Random inputs for comparing the kernels of two devices.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/core/numbers/bfloat16.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/core/shape.hpp"
#include "support/run_kernel.hpp"

namespace testing {

/// Allowed relative errors (in norm) in mixed precision: for values stored in bfloat16, one
/// rounding of at most 2^-8 with some margin; for weight gradients, sums in float.
inline constexpr double half_tolerance = 4e-3, half_dw_tolerance = 1e-5;

/// An integer in [low, high].
inline int between(lockstep::Philox& g, int low, int high) {
  return low + static_cast<int>(g.below(static_cast<std::uint32_t>(high - low + 1)));
}
template <class... Ts>
int one_of(lockstep::Philox& g, Ts... values) {
  const int list[]{values...};
  return list[g.below(sizeof...(values))];
}

/// Random axes before the last one: none, steps, or rows and columns.
inline lockstep::Shape leading_axes(lockstep::Philox& g) {
  const int rank = between(g, 0, 2);
  return rank == 0   ? lockstep::Shape{}
         : rank == 1 ? lockstep::shape(between(g, 1, 5))
                     : lockstep::shape(between(g, 1, 3), between(g, 1, 3));
}

/// Inputs for one op, exactly representable in float, so equal in float and double.
struct Numbers {
  std::vector<float> x, w, dy, x2;
  std::vector<std::vector<float>> more = {};  ///< operands after x2
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
  for (const auto& operand : n.more) options.more.push_back(as<T>(operand));
  options.want_dx = want_dx;
  return run_layer<D>(op, count, as<T>(n.x), as<T>(n.w), as<T>(n.dy), options, device);
}

inline double norm(const std::vector<float>& values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum);
}

/// The values rounded to A.
template <class A = lockstep::bfloat16>
std::vector<float> rounded(const std::vector<float>& values) {
  return as<float>(as<A>(values));
}

}  // namespace testing
