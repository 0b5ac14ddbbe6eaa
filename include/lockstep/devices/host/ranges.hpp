/// \file
/// Parallel loops over host memory, for kernels shared by devices with and without threads.
#pragma once

#include <cstddef>

#include "lockstep/core/slice.hpp"

namespace lockstep::detail {

/// Calls body(Slice) for disjoint slices that cover [0, n): on a device with threads, one slice per
/// thread, of at least `grain` elements except the last; otherwise a single slice. The body may
/// write to its own slice without synchronization.
template <class Context, class Body>
void for_ranges(Context& context, std::size_t n, std::size_t grain, const Body& body) {
  if constexpr (requires { context.for_ranges(n, grain, body); })
    context.for_ranges(n, grain, body);
  else
    body(Slice{0, n});
}

}  // namespace lockstep::detail
