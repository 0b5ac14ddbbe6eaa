/// \file
/// The group of one member. Invariant: every operation is done at once and changes nothing.
#pragma once

#include <cstddef>

#include "lockstep/concepts/collective.hpp"

namespace lockstep {

/// The collective of a strategy with a single replica.
class SelfGroup {
 public:
  std::size_t rank() const { return 0; }
  std::size_t size() const { return 1; }
  void abort() {}
  template <class T>
  void all_reduce(T*, std::size_t) {}
  template <class T>
  void broadcast(T*, std::size_t, std::size_t /*root*/) {}
};

static_assert(AllReduces<SelfGroup, float> && AllReduces<SelfGroup, double> &&
              Broadcasts<SelfGroup, float>);

}  // namespace lockstep
