/// \file
/// Softmax and log-softmax over the last axis on the CPU: oneDNN, and loops of ours. oneDNN's
/// log-softmax is off by up to 1.4e-6, and by more than its size where one class dominates.
/// Invariant: a row whose largest element is NaN or infinite becomes NaN, as by the formula. With
/// oneDNN alone only the element itself would be NaN.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <limits>
#include <vector>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/core/numbers/finite.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/devices/cpu/elements.hpp"
#include "lockstep/devices/cpu/exponentials.hpp"
#include "lockstep/devices/cpu/onednn.hpp"
#include "lockstep/devices/cpu/openmp.hpp"
#include "lockstep/layers/activations/softmax.hpp"

namespace lockstep {
namespace detail {

/// Prepared state: both passes and their scratch.
struct SoftmaxCalls {
  onednn::Scratch scratch;
  onednn::Call forward, backward;
  std::size_t scratch_bytes() const { return scratch.bytes(); }
};

/// Calls each(Bytes<N>, row) for the first element of each row, on all threads; it must be
/// always_inline.
template <class A, class Each>
void for_rows(int threads, std::size_t rows, std::size_t channels, const Each& each) {
  parallel_ranges(threads, rows, parallel_grain(4 * channels), [&](Slice part, std::size_t) {
    run_with_any_vectors<A>([&](auto bytes) __attribute__((always_inline, no_instrument_function)) {
      for (std::size_t i = 0; i < part.count; ++i) each(bytes, (part.first + i) * channels);
    });
  });
}

/// y = x - max - log(sum exp(x - max)) for one row of `n` classes. The sum is in double, so that
/// its logarithm keeps its digits near 0. NaN in x makes all of y NaN.
template <std::size_t Bytes, class A>
[[gnu::always_inline, gnu::no_instrument_function]] inline void log_softmax(const A* x, A* y,
                                                                            std::size_t n) {
  using V = Lanes<float, Bytes>;
  constexpr std::size_t lanes = lanes_of<float, Bytes>;
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  V most = V{} + lowest, v, e;
  for (std::size_t k = 0; k < n; k += lanes) {
    load_some(v, x + k, n - k, lowest);
    most = v > most ? v : most;
  }
  float largest = most[0];
  for (std::size_t i = 1; i < lanes; ++i) largest = most[i] > largest ? most[i] : largest;
  double sums[lanes] = {}, sum = 0;
  for (std::size_t k = 0; k < n; k += lanes) {
    load_some(v, x + k, n - k, lowest);
    exp_of_negative(e, v - largest);
    add_lanes<float>(sums, e);
  }
  for (const double s : sums) sum += s;
  const float log_of_sum = static_cast<float>(std::log(sum));
  for (std::size_t k = 0; k < n; k += lanes) {
    load_some(v, x + k, n - k);
    v = (v - largest) - log_of_sum;
    store_some(y + k, v, n - k);
  }
}

/// dx = dy - exp(y) sum(dy) for one row.
template <std::size_t Bytes, class A>
[[gnu::always_inline, gnu::no_instrument_function]] inline void log_softmax_gradient(
    const A* y, const A* dy, A* dx, std::size_t n) {
  using V = Lanes<float, Bytes>;
  constexpr std::size_t lanes = lanes_of<float, Bytes>;
  double whole = 0;
  for (std::size_t k = 0; k < n; ++k) whole += static_cast<double>(static_cast<float>(dy[k]));
  const float sum = static_cast<float>(whole);
  V u, v, e;
  for (std::size_t k = 0; k < n; k += lanes) {
    load_some(u, y + k, n - k);
    load_some(v, dy + k, n - k);
    exp_of_negative(e, u);
    v -= e * sum;
    store_some(dx + k, v, n - k);
  }
}

/// The rows of x (rows, channels) without a finite maximum.
template <class A>
[[gnu::cold, gnu::noinline]] std::vector<std::size_t> rows_without_maximum(const A* x,
                                                                           std::size_t rows,
                                                                           std::size_t channels) {
  using T = typename ComputedIn<A>::type;
  std::vector<std::size_t> found;
  for (std::size_t row = 0; row < rows; ++row) {
    T largest = T(x[row * channels]);
    for (std::size_t k = 1; k < channels && !is_nan(largest); ++k)
      if (const T v = T(x[row * channels + k]); v > largest || is_nan(v)) largest = v;
    if (!is_finite(largest)) found.push_back(row);
  }
  return found;
}

}  // namespace detail

template <class P>
struct Kernel<SoftmaxOp, BasicCpu<P>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCpu<P>;
  using Prepared = detail::SoftmaxCalls;
  static constexpr bool keeps_y = true, in_place = true;

  template <std::same_as<ForwardOnly>... Only>
  static Prepared prepare(const SoftmaxOp& op, typename D::Context& context, std::size_t count,
                          Only...) {
    Prepared p;
    if (count == 0) return p;
    const auto scope = context.scope();
    const detail::onednn::Site at{"softmax", op.out(), context.engine()};
    // All axes before the last are rows of one matrix.
    const std::ptrdiff_t channels = op.in.channels(),
                         rows = static_cast<std::ptrdiff_t>(count * op.in.size()) / channels;
    const detail::onednn::MemoryDesc data(at, detail::onednn::data_type<ActivationOf<D>>(),
                                          {rows, channels}, dnnl_ab);
    const auto pd = detail::onednn::softmax_forward(at, dnnl_softmax_accurate, data, 1);
    p.forward =
        detail::onednn::Call(at, pd, {{DNNL_ARG_SRC, data}, {DNNL_ARG_DST, data}}, p.scratch);
    if constexpr (sizeof...(Only) == 0)
      p.backward = detail::onednn::Call(
          at, detail::onednn::softmax_backward(at, dnnl_softmax_accurate, data, 1, pd),
          {{DNNL_ARG_DST, data}, {DNNL_ARG_DIFF_DST, data}, {DNNL_ARG_DIFF_SRC, data}}, p.scratch);
    return p;
  }
  static void forward(const SoftmaxOp& op, const Io<D>& io, Prepared& prepared) {
    if (io.step.count == 0) return;
    using A = ActivationOf<D>;
    const std::size_t size = io.step.count * op.in.size(),
                      channels = static_cast<std::size_t>(op.in.channels());
    std::vector<std::size_t> rows;  // found before the call, since y may alias x
    if (!detail::are_moderate(io.device.threads(), io.x[0], size)) [[unlikely]]
      rows = detail::rows_without_maximum(io.x[0], size / channels, channels);
    prepared.forward(io.device.stream(), io.scratch, {io.x[0], io.y});
    for (const std::size_t row : rows)
      std::fill_n(io.y + row * channels, channels, A(std::numeric_limits<float>::quiet_NaN()));
  }
  static void backward(const SoftmaxOp&, const Io<D>& io, Prepared& prepared) {
    if (io.step.count == 0 || io.dx[0] == nullptr) return;
    prepared.backward(io.device.stream(), io.scratch, {io.y, io.dy, io.dx[0]});
  }
};

template <class P>
struct Kernel<LogSoftmaxOp, BasicCpu<P>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCpu<P>;
  using A = ActivationOf<D>;
  static constexpr bool keeps_y = true, in_place = true;

  static void forward(const LogSoftmaxOp& op, const Io<D>& io) {
    const auto n = static_cast<std::size_t>(op.in.channels());
    detail::for_rows<A>(io.device.threads(), io.step.count * op.in.size() / n, n,
                        [n, x = io.x[0], y = io.y](auto bytes, std::size_t row)
                            __attribute__((always_inline, no_instrument_function)) {
                              detail::log_softmax<bytes.value>(x + row, y + row, n);
                            });
  }
  static void backward(const LogSoftmaxOp& op, const Io<D>& io) {
    if (io.dx[0] == nullptr) return;
    const auto n = static_cast<std::size_t>(op.in.channels());
    detail::for_rows<A>(io.device.threads(), io.step.count * op.in.size() / n, n,
                        [n, y = io.y, dy = io.dy, dx = io.dx[0]](auto bytes, std::size_t row)
                            __attribute__((always_inline, no_instrument_function)) {
                              detail::log_softmax_gradient<bytes.value>(y + row, dy + row, dx + row,
                                                                        n);
                            });
  }
};

static_assert(HasKernel<SoftmaxOp, Cpu> && HasKernel<LogSoftmaxOp, Cpu>);

}  // namespace lockstep
