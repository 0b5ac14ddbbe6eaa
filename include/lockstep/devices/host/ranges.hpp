/// \file
/// How a loop over host memory uses the threads of its device.
#pragma once

#include <cstddef>

#include "lockstep/core/slice.hpp"

namespace lockstep::detail {

/// body(Slice) for slices that cover `n`: one for each thread of a device that has threads, none
/// but the last below `grain`; else one. No two slices meet, so the body may write what is its own.
template <class Context, class Body>
void for_ranges(Context& context, std::size_t n, std::size_t grain, const Body& body) {
  if constexpr (requires { context.for_ranges(n, grain, body); })
    context.for_ranges(n, grain, body);
  else
    body(Slice{0, n});
}

}  // namespace lockstep::detail
