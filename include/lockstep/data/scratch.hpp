/// \file
/// Temporary buffers of a gather. Invariant: a buffer is kept between calls, so only the first
/// batch allocates.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep::pipeline {

/// A buffer of `count` elements, one per thread, `Owner` and `Use`. The contents are undefined at
/// each call.
template <class Owner, int Use, class T = float>
std::span<T> scratch(std::size_t count) {
  thread_local std::vector<T> memory;
  if (memory.size() < count) memory.resize(count);
  return {memory.data(), count};
}

}  // namespace lockstep::pipeline
