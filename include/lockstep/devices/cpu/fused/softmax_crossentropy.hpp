/// \file
/// Softmax, sparse cross-entropy and its gradient in one pass over each row of logits:
/// loss = log sum e^(p - max) + max - p[label], gradient = scale (softmax(p) - onehot(label)).
/// Invariants: the largest logit is subtracted first, so no exponential overflows; rows are summed
/// in double, in parts that do not depend on the number of threads, hence neither do the bits.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "lockstep/concepts/loss.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/devices/cpu/lanes.hpp"
#include "lockstep/losses/sparse_categorical_crossentropy.hpp"

namespace lockstep {
namespace detail {

/// v = e^v for v <= 0, within 2 ulp. Results below the smallest normal number are 0; NaN
/// propagates. Range reduction to e^v = 2^n e^r and a polynomial in r (Cephes' expf).
template <class V>
[[gnu::always_inline, gnu::no_instrument_function]] inline void exponential(V& v) {
  constexpr std::size_t width = sizeof(V);
  using Int = Lanes<std::int32_t, width>;
  using Word = Lanes<std::uint32_t, width>;
  constexpr V zero{};
  const V x = v < -87.3f ? zero - 87.3f : v;
  const Int n = __builtin_convertvector(x * 1.44269504f - 0.5f, Int);  // truncation rounds: x <= 0
  const V whole = __builtin_convertvector(n, V);
  const V r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
  V p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const Word bits = (reinterpret_cast<const Word&>(n) + 127u) << 23u;
  V power;
  std::memcpy(&power, &bits, width);
  v = v < -87.3f ? zero : p * power;
}

/// Loss of one row of `size` logits, and its gradient unless g is null; the vectorized form of
/// SparseCategoricalCrossentropyOp::example.
template <std::size_t Width>
[[gnu::always_inline, gnu::no_instrument_function]] inline double softmax_row(
    const float* p, std::size_t size, std::size_t label, float* g, double scale) {
  using V = Lanes<float, Width>;
  constexpr std::size_t step = lanes_of<float, Width>;
  // Pass 1: the maximum. [0, whole) in vectors, the rest one by one, as in the passes below.
  const std::size_t whole = size - size % step;
  std::array<float, step> lane;
  float largest = p[0];
  if (whole > 0) {
    V most, v;
    load(most, p);
    for (std::size_t k = step; k < whole; k += step) {
      load(v, p + k);
      most = v > most ? v : most;
    }
    store(lane.data(), most);
    for (const float value : lane) largest = value > largest ? value : largest;
  }
  for (std::size_t k = whole; k < size; ++k) largest = p[k] > largest ? p[k] : largest;

  // Pass 2: exponentials, kept in g, and their sum. A float accumulates at most 16 of them.
  V v;
  double total = 0;
  for (std::size_t first = 0; first < whole; first += 16 * step) {
    V sums{};
    for (std::size_t k = first; k < whole && k < first + 16 * step; k += step) {
      load(v, p + k);
      v -= largest;
      exponential(v);
      if (g != nullptr) store(g + k, v);
      sums += v;
    }
    store(lane.data(), sums);
    for (const float value : lane) total += static_cast<double>(value);
  }
  for (std::size_t k = whole; k < size; ++k) {
    const float e = std::exp(p[k] - largest);
    if (g != nullptr) g[k] = e;
    total += static_cast<double>(e);
  }
  // Pass 3: g = scale (softmax - onehot).
  const float sum = static_cast<float>(total);
  if (g != nullptr) {
    const float factor = static_cast<float>(scale) / sum;
    for (std::size_t k = 0; k < whole; k += step) {
      load(v, g + k);
      v *= factor;
      store(g + k, v);
    }
    for (std::size_t k = whole; k < size; ++k) g[k] *= factor;
    g[label] -= static_cast<float>(scale);
  }
  return static_cast<double>(std::log(sum) + (largest - p[label]));
}

}  // namespace detail

/// Vectorized for logits of at least min_classes_for_vectors classes. Fewer classes, and
/// probabilities, use the op's scalar code.
template <class P>
  requires std::same_as<typename BasicCpu<P>::real, float>
struct Kernel<SparseCategoricalCrossentropyOp, BasicCpu<P>> : KernelTraits {
  using library_kernel = Kernel;
  using Op = SparseCategoricalCrossentropyOp;
  using D = BasicCpu<P>;
  static constexpr bool weighs = true;
  /// Below this size, one vector plus the scalar remainder cost more than the scalar loop.
  static constexpr std::size_t min_classes_for_vectors = 16;

  static void run(const Op& op, const LossIo<D, std::int32_t>& io) {
    std::array<double, max_parts> sums;
    const Op one = op.row();
    const Rows rows{io, op.rows(), op.ignored};
    const std::size_t all = io.count * op.rows(), size = one.size(),
                      part = (all + max_parts - 1) / max_parts,
                      parts = part == 0 ? 0 : (all + part - 1) / part;
    const std::size_t vectors =
        op.from_logits && size >= min_classes_for_vectors ? detail::longest_vectors() : 0;
    detail::parallel_ranges(
        io.device.threads(), parts, detail::parallel_grain(part * size),
        [&](Slice mine, std::size_t) {
          for (std::size_t i = mine.first; i < mine.first + mine.count; ++i) {
            const std::size_t first = i * part, last = std::min(first + part, all);
            if (vectors == 0)
              sums[i] = add(rows, first, last, size,
                            [&](const float* p, const std::int32_t* label, float* g, double scale) {
                              return one.example(p, label, g, scale);
                            });
            else
              detail::run_with_vectors_of(
                  vectors, [&](auto bytes) __attribute__((always_inline, no_instrument_function)) {
                    sums[i] =
                        add(rows, first, last, size,
                            [&](const float* p, const std::int32_t* label, float* g, double scale)
                                __attribute__((always_inline, no_instrument_function)) {
                                  return detail::softmax_row<bytes.value>(
                                      p, size, static_cast<std::size_t>(*label), g, scale);
                                });
                  });
          }
        });
    for (std::size_t i = 0; i < parts; ++i) *io.sum += sums[i] / static_cast<double>(op.rows());
  }

 private:
  static constexpr std::size_t max_parts = 64;  // independent of the thread count

  struct Rows {
    const LossIo<D, std::int32_t>& io;
    std::size_t of_example;
    const std::optional<std::int32_t>& ignored;
  };

  /// Weighted sum of row(...) over rows [first, last).
  template <class Row>
  [[gnu::always_inline, gnu::no_instrument_function]] static double add(
      const Rows& rows, std::size_t first, std::size_t last, std::size_t size, const Row& row) {
    const LossIo<D, std::int32_t>& io = rows.io;
    const std::size_t of_weight = rows.of_example / io.weights;  // rows with the same weight
    const double scale = io.scale / static_cast<double>(rows.of_example);
    double sum = 0;
    for (std::size_t n = first; n < last; ++n) {
      float* const g = io.gradient == nullptr ? nullptr : io.gradient + n * size;
      if (rows.ignored == io.target[n]) {
        if (g != nullptr) std::fill_n(g, size, 0.0f);
        continue;
      }
      const double weight =
          io.weight == nullptr ? 1 : static_cast<double>(io.weight[n / of_weight]);
      sum += weight * row(io.prediction + n * size, io.target + n, g, weight * scale);
    }
    return sum;
  }
};

static_assert(HasKernel<SparseCategoricalCrossentropyOp, Cpu>);

}  // namespace lockstep
