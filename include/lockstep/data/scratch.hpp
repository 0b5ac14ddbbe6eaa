/// \file
/// Memory of a gather between its call and its return. Invariant: kept from call to call, so that
/// no batch but the first allocates.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep::pipeline {

/// `count` elements of this thread, kept from call to call, for `Owner` alone.
template <class Owner, int Use, class T = float>
std::span<T> scratch(std::size_t count) {
  thread_local std::vector<T> memory;
  if (memory.size() < count) memory.resize(count);
  return {memory.data(), count};
}

}  // namespace lockstep::pipeline
