/// \file
/// Sums of flat buffers.
#pragma once

#include <cstddef>

#include "lockstep/devices/cuda/commands.hpp"
#include "lockstep/devices/cuda/program.hpp"

namespace lockstep::detail::cuda {

inline constexpr Source elements_source{"elements", R"cuda(
KERNEL(add_elements)(A* __restrict__ y, const A* __restrict__ x, i64 n) {
  for (i64 i = INDEX; i < n; i += STRIDE) y[i] = put<A>(get(y[i]) + get(x[i]));
}
)cuda"};

/// y += x.
template <class Context>
void add_elements(Context& context, float* y, const float* x, std::size_t n) {
  if (n == 0) return;
  context.launch(context.kernel(elements_source, "add_elements", {}), Grid::over(n), y, x,
                 static_cast<std::int64_t>(n));
}

}  // namespace lockstep::detail::cuda
