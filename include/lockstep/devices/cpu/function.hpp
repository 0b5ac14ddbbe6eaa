/// \file
/// Functions on the CPU, vectorized and on all threads. Invariants: without reductions elements are
/// independent, so threads and vector lengths do not change the bits; the header needs no oneDNN,
/// so that a unit for another device can include it.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numbers>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/concepts/loss.hpp"
#include "lockstep/core/numbers/square_root.hpp"
#include "lockstep/devices/cpu/exponentials.hpp"
#include "lockstep/devices/cpu/lanes.hpp"
#include "lockstep/devices/host/function.hpp"
#include "lockstep/devices/host/loss.hpp"
#include "lockstep/functions/code.hpp"
#include "lockstep/functions/evaluate.hpp"
#include "lockstep/layers/function.hpp"
#include "lockstep/losses/function.hpp"

namespace lockstep {

template <class Precision>
struct BasicCpu;

namespace detail {

/// y = exp(x).
template <class V>
[[gnu::always_inline, gnu::no_instrument_function]] inline void exp_of(V& y, const V& x) {
  // As exp_of_negative, with a rounding that is right on both sides of 0. exp(89) is infinite.
  const V least = V{} - 104.0f, most = V{} + 89.0f;
  const V bounded = x < least ? least : x > most ? most : x;
  const V half_way = bounded > 0 ? V{} + 0.5f : V{} - 0.5f;
  using I = IntegersOf<V>;
  const I n = __builtin_convertvector(bounded * 1.44269504f + half_way, I);
  const V whole = __builtin_convertvector(n, V);
  const V r = (bounded - whole * 0.693359375f) - whole * -2.12194440e-4f;
  V p = r * (1.0f / 5040) + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r * r + r;
  V half, other;
  power_of_two(half, n >> 1);  // in two steps, since 2^n may be denormal or 2^128
  power_of_two(other, n - (n >> 1));
  y = (p + 1.0f) * half * other;
}

/// y = log(x): with x = 2^n m, sqrt(1/2) <= m < sqrt(2), n ln 2 + 2 atanh((m - 1) / (m + 1)).
template <class V>
[[gnu::always_inline, gnu::no_instrument_function]] inline void log_of(V& y, const V& x) {
  using I = IntegersOf<V>;
  const V tiny = V{} + 0x1p-126f, infinity = V{} + std::numeric_limits<float>::infinity();
  const V one = V{} + 1.0f, normal = x > 0 ? (x < tiny ? x * 0x1p24f : x) : one;
  I bits;
  std::memcpy(&bits, &normal, sizeof bits);
  const I shifted = bits - 0x3F3504F3;  // of sqrt(1/2)
  const I n = shifted >> 23, of_m = bits - (n << 23);
  V m;
  std::memcpy(&m, &of_m, sizeof m);
  V e = __builtin_convertvector(n, V);
  e = x < tiny ? e - 24.0f : e;
  const V s = (m - 1.0f) / (m + 1.0f), q = s * s;
  V p = q * (2.0f / 9) + 2.0f / 7;
  p = p * q + 2.0f / 5;
  p = p * q + 2.0f / 3;
  p = p * q * s + e * -2.12194440e-4f;
  y = e * 0.693359375f + (p + (s + s));
  y = ((x == infinity) | (x != x)) ? x : y;
  y = x < 0 ? V{} + std::numeric_limits<float>::quiet_NaN() : x == 0 ? -infinity : y;
}

/// |factor x| sqrt(2), of which the tail of the normal distribution is that of erfc.
template <class V>
[[gnu::always_inline, gnu::no_instrument_function]] inline void normal_size(V& size, const V& x,
                                                                            double factor) {
  const double k = (factor < 0 ? -factor : factor) * std::numbers::sqrt2;
  size = x > 0 ? x : -x;
  if (k < 1 - 1e-9 || k > 1 + 1e-9) size *= static_cast<float>(k);
}

/// y = erf(factor x): a series near 0, where 1 - erfc(x) would lose the digits.
template <class V>
[[gnu::always_inline, gnu::no_instrument_function]] inline void erf_of(V& y, const V& x,
                                                                       double factor) {
  V size, tail, exponential;
  normal_size(size, x, factor);
  normal_tail(tail, exponential, size);
  const V z = x * static_cast<float>(factor), far = 1.0f - (tail + tail), q = z * z;
  V p = q * (1.0f / 9360) - 1.0f / 1320;
  p = p * q + 1.0f / 216;
  p = p * q - 1.0f / 42;
  p = p * q + 1.0f / 10;
  p = p * q - 1.0f / 3;
  p = p * q + 1.0f;
  y = size < 0.7f ? z * p * 1.12837917f : z > 0 ? far : -far;
}

/// Vectors of floats; arguments and results are passed by reference, as in lanes.hpp.
template <std::size_t Bytes>
struct VectorMath {
  using V = Lanes<float, Bytes>;
  using T = float;
  static constexpr std::size_t lanes = lanes_of<float, Bytes>;

#define LOCKSTEP_INLINE [[gnu::always_inline, gnu::no_instrument_function]] static inline
  LOCKSTEP_INLINE void exp(V& y, const V& a) { exp_of(y, a); }
  LOCKSTEP_INLINE void expm1(V& y, const V& a) {
    V small, large;
    expm1_of_negative(small, a > 0 ? V{} : a);
    exp_of(large, a);
    // exp(a) (1 - exp(-a)), which keeps the digits of a small a.
    V other;
    expm1_of_negative(other, a > 0 ? -a : V{});
    y = a > 0 ? (a > 20.0f ? large - 1.0f : large * -other) : small;
  }
  LOCKSTEP_INLINE void log(V& y, const V& a) { log_of(y, a); }
  LOCKSTEP_INLINE void log1p(V& y, const V& a) {
    // The part of a that 1 + a has lost is added, divided by 1 + a.
    const V whole = a + 1.0f, lost = a - (whole - 1.0f);
    V main;
    log_of(main, whole);
    const V large = V{} + 0x1p24f;
    y = ((whole > 0) & (a < large)) ? main + lost / whole : main;
  }
  LOCKSTEP_INLINE void tanh(V& y, const V& a) {
    V e;
    expm1_of_negative(e, (a > 0 ? a : -a) * -2.0f);
    const V size = -e / (e + 2.0f);
    y = a > 0 ? size : -size;
  }
  LOCKSTEP_INLINE void sigmoid(V& y, const V& a) {
    V e;
    exp_of_negative(e, a > 0 ? -a : a);
    y = (a > 0 ? V{} + 1.0f : e) / (e + 1.0f);
  }
  LOCKSTEP_INLINE void softplus(V& y, const V& a) {
    V e;
    exp_of_negative(e, a > 0 ? -a : a);
    log1p_of_fraction(y, e);
    y += a > 0 ? a : V{};
  }
  LOCKSTEP_INLINE void erf(V& y, const V& a, double factor) { erf_of(y, a, factor); }
  // erfc and bell of the same argument share their work.
  LOCKSTEP_INLINE void erfc(V& y, const V& a, double factor) {
    V size, tail, exponential;
    normal_size(size, a, factor);
    normal_tail(tail, exponential, size);
    y = tail + tail;
    if (factor > 0)
      y = a > 0 ? y : 2.0f - y;
    else
      y = a > 0 ? 2.0f - y : y;
  }
  LOCKSTEP_INLINE void bell(V& y, const V& a, double factor) {
    V size, tail;
    normal_size(size, a, factor);
    normal_tail(tail, y, size);
  }
  LOCKSTEP_INLINE void sqrt(V& y, const V& a) {
    y = a;
    if constexpr (sizeof(V) == 16)  // without AVX
      for (std::size_t i = 0; i < lanes; ++i) y[i] = std::sqrt(a[i]);
    else
      sqrt_in_place(y);
  }
  LOCKSTEP_INLINE void power(V& y, const V& a, double e) {
    for (std::size_t i = 0; i < lanes; ++i) y[i] = std::pow(a[i], static_cast<float>(e));
  }
  template <class A>
  LOCKSTEP_INLINE void load(V& v, const A* p, std::size_t count) {
    load_some(v, p, count);
  }
  template <class A>
  LOCKSTEP_INLINE void store(A* p, const V& v, std::size_t count) {
    store_some(p, v, count);
  }
  LOCKSTEP_INLINE void add(double* sums, const V& v, std::size_t count) {
    if (count == lanes) return add_lanes<float>(sums, v);
    for (std::size_t i = 0; i < count; ++i) sums[i] += static_cast<double>(v[i]);
  }
#undef LOCKSTEP_INLINE
};

/// The op of a loss by a function, with vectors. Invariant: elements are added in their order.
template <class Op>
struct OnVectors;
template <class C>
struct OnVectors<ElementwiseLossOp<FunctionRule<C>>> {
  using target_type = float;
  ElementwiseLossOp<FunctionRule<C>> op;

  std::size_t rows() const { return op.rows(); }
  OnVectors row() const { return {op.row()}; }
  std::size_t size() const { return op.size(); }
  std::size_t target_size() const { return op.size(); }
  template <class T>
  double example(const T* p, const T* t, T* g, double scale) const {
    const double n = static_cast<double>(op.elements);
    const float share = static_cast<float>(scale / n);
    double sum = 0;
    run_with_any_vectors<float>(
        [&](auto bytes) __attribute__((always_inline, no_instrument_function)) {
          using P = functions::ValueAndSlope<C>;
          using Math = VectorMath<bytes.value>;
          const auto step = [&](std::size_t k, std::size_t count)
                                __attribute__((always_inline, no_instrument_function)) {
                                  functions::Nodes<P, Math> nodes;
                                  typename Math::V v;
                                  Math::load(v, p + k, count);
                                  nodes.template set<functions::Operation::input>(v);
                                  Math::load(v, t + k, count);
                                  nodes.template set<functions::Operation::target>(v);
                                  nodes.compute_all();
                                  nodes.template get<static_cast<std::size_t>(P::value)>(v);
                                  float part[Math::lanes];
                                  detail::store(part, v);
                                  for (std::size_t i = 0; i < count; ++i)
                                    sum += static_cast<double>(part[i]);
                                  if (g == nullptr) return;
                                  nodes.template get<static_cast<std::size_t>(P::root)>(v);
                                  v *= share;
                                  Math::store(g + k, v, count);
                                };
          const std::size_t whole = op.elements - op.elements % Math::lanes;
          for (std::size_t k = 0; k < whole; k += Math::lanes) step(k, Math::lanes);
          if (whole < op.elements) step(whole, op.elements - whole);
        });
    return sum / n;
  }
};
template <class C>
struct OnVectors<FunctionLossOp<C>> {
  using target_type = float;
  static constexpr bool by_rows = true;
  FunctionLossOp<C> op;

  std::size_t rows() const { return op.rows(); }
  OnVectors row() const { return {op.row()}; }
  std::size_t size() const { return op.size(); }
  std::size_t target_size() const { return op.size(); }
  template <class T>
  double example(const T* p, const T* t, T* g, double scale) const {
    if (op.positions > 1) return mean_over_rows(*this, p, t, g, scale);
    using P = functions::ValueAndSlope<C>;
    const float share = static_cast<float>(scale);
    double loss = 0;
    run_with_any_vectors<float>(
        [&](auto bytes) __attribute__((always_inline, no_instrument_function)) {
          using Math = VectorMath<bytes.value>;
          functions::Nodes<P, Math> nodes;
          functions::RowPasses<P, Math>::run(
              nodes, op.elements,
              [=](auto& values, std::size_t k, std::size_t count)
                  __attribute__((always_inline, no_instrument_function)) {
                    typename Math::V v;
                    Math::load(v, p + k, count);
                    values.template set<functions::Operation::input>(v);
                    Math::load(v, t + k, count);
                    values.template set<functions::Operation::target>(v);
                  },
              [=](const auto& values, std::size_t k, std::size_t count)
                  __attribute__((always_inline, no_instrument_function)) {
                    typename Math::V v;
                    values.template get<static_cast<std::size_t>(P::root)>(v);
                    v *= share;
                    Math::store(g + k, v, count);
                  },
              g != nullptr);
          loss = nodes.template row_value<static_cast<std::size_t>(P::value)>();
        });
    return loss;
  }
};

template <class O>
struct SmoothActivation;

/// The kernels of smooth_activations.hpp compute functions without reductions.
template <class C>
  requires(!FunctionOp<C>::reduces)
struct SmoothActivation<FunctionOp<C>> {
  template <class V>
  [[gnu::always_inline, gnu::no_instrument_function]] static void value(V& y, const V& x) {
    evaluate<functions::Forward<C>>(y, x);
  }
  template <class V>
  [[gnu::always_inline, gnu::no_instrument_function]] static void derivative(V& d,
                                                                             const V& x_or_y) {
    evaluate<functions::Slope<C>>(d, x_or_y);
  }

 private:
  template <class P, class V>
  [[gnu::always_inline, gnu::no_instrument_function]] static void evaluate(V& to, const V& from) {
    functions::Nodes<P, VectorMath<sizeof(V)>> nodes;
    nodes.template set<functions::Operation::input>(from);
    nodes.template set<functions::Operation::output>(from);
    nodes.compute_all();
    nodes.template get<static_cast<std::size_t>(P::root)>(to);
  }
};

}  // namespace detail

template <class C, class Precision>
  requires FunctionOp<C>::reduces
struct Kernel<FunctionOp<C>, BasicCpu<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCpu<Precision>;
  using A = ActivationOf<D>;
  static constexpr bool keeps_x = true;

  static void forward(const FunctionOp<C>& op, const Io<D>& io) {
    for_rows(op, io,
             [x = io.x[0], y = io.y](auto bytes, std::size_t row, std::size_t n)
                 __attribute__((always_inline, no_instrument_function)) {
                   using Row = detail::FunctionRow<C, detail::VectorMath<bytes.value>>;
                   Row::forward(x + row * n, y + row * (Row::is_row ? 1 : n), n);
                 });
  }
  static void backward(const FunctionOp<C>& op, const Io<D>& io) {
    if (io.dx[0] == nullptr) return;
    for_rows(op, io,
             [x = io.x[0], dy = io.dy, dx = io.dx[0]](auto bytes, std::size_t row, std::size_t n)
                 __attribute__((always_inline, no_instrument_function)) {
                   using Row = detail::FunctionRow<C, detail::VectorMath<bytes.value>>;
                   Row::backward(x + row * n, dy + row * (Row::is_row ? 1 : n), dx + row * n, n);
                 });
  }

 private:
  template <class Each>
  static void for_rows(const FunctionOp<C>& op, const Io<D>& io, const Each& each) {
    const auto n = static_cast<std::size_t>(op.in.channels());
    const std::size_t grain = 16384 / (8 * n) + 1;
    detail::for_ranges(io.device, io.step.count * op.in.size() / n, grain, [&](Slice part) {
      detail::run_with_any_vectors<A>(
          [&](auto bytes) __attribute__((always_inline, no_instrument_function)) {
            for (std::size_t row = part.first; row < part.first + part.count; ++row)
              each(bytes, row, n);
          });
    });
  }
};

/// The loops of devices/host/loss.hpp, with vectors within an example.
template <class C, class Precision>
struct Kernel<ElementwiseLossOp<FunctionRule<C>>, BasicCpu<Precision>>
    : Kernel<detail::OnVectors<ElementwiseLossOp<FunctionRule<C>>>, BasicCpu<Precision>> {
  using library_kernel = Kernel;
  using Op = ElementwiseLossOp<FunctionRule<C>>;
  static void run(const Op& op, const LossIo<BasicCpu<Precision>, float>& io) {
    Kernel<detail::OnVectors<Op>, BasicCpu<Precision>>::run({op}, io);
  }
};
template <class C, class Precision>
struct Kernel<FunctionLossOp<C>, BasicCpu<Precision>>
    : Kernel<detail::OnVectors<FunctionLossOp<C>>, BasicCpu<Precision>> {
  using library_kernel = Kernel;
  using Op = FunctionLossOp<C>;
  static void run(const Op& op, const LossIo<BasicCpu<Precision>, float>& io) {
    Kernel<detail::OnVectors<Op>, BasicCpu<Precision>>::run({op}, io);
  }
};

}  // namespace lockstep
