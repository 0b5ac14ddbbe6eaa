/// \file
/// Element-wise sums, masks and conversions of flat buffers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/devices/cuda/commands.hpp"
#include "lockstep/devices/cuda/program.hpp"

namespace lockstep::detail::cuda {

/// One thread per element; A is one of the three activation types.
inline constexpr Source elements_source{"elements", R"cuda(
KERNEL(add_elements)(A* __restrict__ y, const A* __restrict__ x, i64 n) {
  FOR_EACH(i, n) y[i] = put<A>(get(y[i]) + get(x[i]));
}
KERNEL(mask_elements)(A* __restrict__ x, const A* __restrict__ y, i64 n) {
  FOR_EACH(i, n) x[i] = put<A>(get(y[i]) <= 0 ? 0.0f : get(x[i]));
}
KERNEL(to_activations)(A* __restrict__ y, const float* __restrict__ x, i64 n) {
  FOR_EACH(i, n) y[i] = put<A>(x[i]);
}
KERNEL(to_floats)(float* __restrict__ y, const A* __restrict__ x, i64 n) {
  FOR_EACH(i, n) y[i] = get(x[i]);
}
)cuda"};

/// Its own source, because it needs no ACTIVATION.
inline constexpr Source download_and_clear_source{"download_and_clear", R"cuda(
KERNEL(download_and_clear)(u64* __restrict__ to, u64* __restrict__ from, i64 n) {
  FOR_EACH(i, n) {
    to[i] = from[i];
    from[i] = 0;
  }
}
)cuda"};

/// Launches one thread per element.
template <class To, class From, class Context>
void run_on_elements(Context& context, const char* entry, int activation, To* y, const From* x,
                     std::size_t n) {
  if (n == 0) return;
  context.launch(context.kernel(elements_source, entry, {{"ACTIVATION", activation}}),
                 Grid::over(n), y, x, static_cast<std::int64_t>(n));
}

/// y += x.
template <class A, class Context>
void add_elements(Context& context, A* y, const A* x, std::size_t n) {
  run_on_elements(context, "add_elements", code_of<A>, y, x, n);
}
/// x = x where y is positive or NaN, else 0: the gradient of a ReLU with result y.
template <class A, class Context>
void mask_elements(Context& context, A* x, const A* y, std::size_t n) {
  run_on_elements(context, "mask_elements", code_of<A>, x, y, n);
}
/// y = x, rounded to the activation type.
template <class A, class Context>
void convert_elements(Context& context, A* y, const float* x, std::size_t n) {
  run_on_elements(context, "to_activations", code_of<A>, y, x, n);
}
template <class A, class Context>
void convert_elements(Context& context, float* y, const A* x, std::size_t n) {
  run_on_elements(context, "to_floats", code_of<A>, y, x, n);
}

/// to = from, from = 0, in 8-byte words; `to` may be pinned host memory.
template <class Context>
void download_and_clear(Context& context, std::uint64_t* to, std::uint64_t* from, std::size_t n) {
  context.launch(context.kernel(download_and_clear_source, "download_and_clear", {}), Grid::over(n),
                 to, from, static_cast<std::int64_t>(n));
}

}  // namespace lockstep::detail::cuda
