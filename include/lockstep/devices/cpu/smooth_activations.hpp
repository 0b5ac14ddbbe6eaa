/// \file
/// ELU, GELU, SiLU and Softplus on the CPU, vectorized and on all threads. oneDNN's functions lose
/// the digits of small results, and its softplus is even negative. Invariant: elements are
/// independent, so threads and vector lengths do not change the bits.
#pragma once

#include <cstddef>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/devices/cpu/exponentials.hpp"
#include "lockstep/devices/cpu/openmp.hpp"
#include "lockstep/layers/activations/elu.hpp"
#include "lockstep/layers/activations/gelu.hpp"
#include "lockstep/layers/activations/silu.hpp"
#include "lockstep/layers/activations/softplus.hpp"

namespace lockstep {
namespace detail {

/// `value` and `derivative` of an op for vectors; the latter takes y if O::from_y, else x.
template <class O>
struct SmoothActivation;

template <>
struct SmoothActivation<ELUOp> {
  template <class V>
  [[gnu::always_inline, gnu::no_instrument_function]] static void value(V& y, const V& x) {
    expm1_of_negative(y, x > 0 ? V{} : x);
    y = x > 0 ? x : y;
  }
  template <class V>
  [[gnu::always_inline, gnu::no_instrument_function]] static void derivative(V& d, const V& y) {
    d = y > 0 ? V{} + 1.0f : y + 1.0f;
  }
};

template <>
struct SmoothActivation<SoftplusOp> {
  template <class V>
  [[gnu::always_inline, gnu::no_instrument_function]] static void value(V& y, const V& x) {
    V e;
    exp_of_negative(e, x > 0 ? -x : x);
    log1p_of_fraction(y, e);
    y += x > 0 ? x : V{};
  }
  template <class V>
  [[gnu::always_inline, gnu::no_instrument_function]] static void derivative(V& d, const V& y) {
    expm1_of_negative(d, -y);
    d = -d;
  }
};

template <>
struct SmoothActivation<GELUOp> {
  template <class V>
  [[gnu::always_inline, gnu::no_instrument_function]] static void value(V& y, const V& x) {
    const V size = x > 0 ? x : -x;
    V tail, exponential;
    normal_tail(tail, exponential, size);
    const V most = V{} + 15.0f;  // inf times a tail of 0 would be NaN
    y = (x > 0 ? x : V{}) - (size > most ? most : size) * tail;
  }
  template <class V>
  [[gnu::always_inline, gnu::no_instrument_function]] static void derivative(V& d, const V& x) {
    const V size = x > 0 ? x : -x;
    V tail, exponential;
    normal_tail(tail, exponential, size);
    const V most = V{} + 15.0f, near = size > most ? most : size;
    const V slope = near * exponential * 0.39894228f;  // 1 / sqrt(2 pi)
    d = x > 0 ? (1.0f - tail) + slope : tail - slope;
  }
};

template <>
struct SmoothActivation<SiLUOp> {
  // With e = exp(-|x| / 2), which cannot underflow before the result does.
  template <class V>
  [[gnu::always_inline, gnu::no_instrument_function]] static void value(V& y, const V& x) {
    V e;
    exp_of_negative(e, (x > 0 ? -x : x) * 0.5f);
    const V part = x / (e * e + 1.0f);
    y = x > 0 ? part : part * e * e;
  }
  template <class V>
  [[gnu::always_inline, gnu::no_instrument_function]] static void derivative(V& d, const V& x) {
    V e;
    exp_of_negative(e, x > 0 ? -x : x);
    const V large = 1.0f / (e + 1.0f), small = e * large;  // sigmoid of |x| and of -|x|
    d = x > 0 ? large * (x * small + 1.0f) : small * (x * large + 1.0f);
  }
};

template <class O>
concept IsSmooth = requires { sizeof(SmoothActivation<O>); };

/// Calls each(Bytes<N>, first, count) for ranges that cover [0, n), of one vector each; the last
/// one of a thread may be shorter. It must be always_inline.
template <class A, class Each>
void for_vectors(int threads, std::size_t n, const Each& each) {
  constexpr std::size_t grain = 1 << 12;  // minimum elements per thread
  parallel_ranges(threads, n, grain, [&](Slice part, std::size_t) {
    run_with_any_vectors<A>([&](auto bytes) __attribute__((always_inline, no_instrument_function)) {
      constexpr std::size_t lanes = lanes_of<float, bytes.value>;
      const std::size_t end = part.first + part.count;
      std::size_t i = part.first;
      for (; i + lanes <= end; i += lanes) each(bytes, i, lanes);
      if (i < end) each(bytes, i, end - i);
    });
  });
}

}  // namespace detail

template <detail::IsSmooth O, class P>
struct Kernel<O, BasicCpu<P>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCpu<P>;
  using A = ActivationOf<D>;
  static constexpr bool keeps_x = !O::from_y, keeps_y = O::from_y, in_place = O::from_y;

  static void forward(const O& op, const Io<D>& io) {
    detail::for_vectors<A>(io.device.threads(), io.step.count * op.in.size(),
                           [x = io.x[0], y = io.y](auto bytes, std::size_t i, std::size_t count)
                               __attribute__((always_inline, no_instrument_function)) {
                                 detail::Lanes<float, bytes.value> u, v;
                                 detail::load_some(u, x + i, count);
                                 detail::SmoothActivation<O>::value(v, u);
                                 detail::store_some(y + i, v, count);
                               });
  }
  static void backward(const O& op, const Io<D>& io) {
    if (io.dx[0] == nullptr) return;
    detail::for_vectors<A>(io.device.threads(), io.step.count * op.in.size(),
                           [known = O::from_y ? io.y : io.x[0], dy = io.dy, dx = io.dx[0]](
                               auto bytes, std::size_t i, std::size_t count)
                               __attribute__((always_inline, no_instrument_function)) {
                                 detail::Lanes<float, bytes.value> u, v, d;
                                 detail::load_some(u, known + i, count);
                                 detail::load_some(v, dy + i, count);
                                 detail::SmoothActivation<O>::derivative(d, u);
                                 v *= d;
                                 detail::store_some(dx + i, v, count);
                               });
  }
};

static_assert(HasKernel<SoftplusOp, Cpu> && HasKernel<GELUOp, CpuBFloat16>);

}  // namespace lockstep
