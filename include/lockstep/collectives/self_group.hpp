/// \file
/// The group of one member. Invariant: every operation returns immediately and changes no data.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "lockstep/concepts/collective.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers/bfloat16.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep {

/// The collective and the gradient exchange of a strategy with a single replica.
class SelfGroup {
 public:
  std::size_t rank() const { return 0; }
  std::size_t size() const { return 1; }
  void abort() {}
  template <class T>
  void all_reduce(T*, std::size_t) {}
  template <class T>
  void all_reduce(T*, std::size_t, double* /*sums*/, std::size_t) {}
  void all_reduce_bfloat16(bfloat16*, std::size_t) {}
  template <class T>
  void broadcast(T*, std::size_t, std::size_t root) {
    if (root > 0)
      throw UsageError("broadcast: root is {}; it must be below the group's size, 1", root);
  }
  template <class T>
  void all_gather(const T* p, std::size_t n, T* out) {
    if (n > 0) std::memcpy(out, p, n * sizeof(T));
  }
  template <class T>
  void reduce_scatter(T*, std::span<const Slice> /*ranges*/) {}
  template <class T>
  void reduce_scatter(T*, std::span<const Slice> /*ranges*/, Slice /*from*/) {}
  template <class T>
  void all_gather(T*, std::span<const Slice> /*ranges*/) {}
  void barrier() {}
  void share_secret(std::byte*, std::size_t) {}

  template <class T>
  void post(T*, std::size_t) {}
  template <class T>
  void finish(T*, std::size_t, double* /*sums*/, std::size_t) {}
  void post(RangeExchange& by, Slice part) { by.exchange(CollectiveRef(*this), part); }
  void finish(RangeExchange& by, Slice part, double* /*sums*/, std::size_t) {
    by.exchange(CollectiveRef(*this), part);
  }
};

static_assert(AllReduces<SelfGroup, float> && AllReducesWithSums<SelfGroup, float> &&
              Broadcasts<SelfGroup, float> && AllGathers<SelfGroup, float> && Barriers<SelfGroup> &&
              ReduceScatters<SelfGroup, float> && AllGathersRanges<SelfGroup, float> &&
              SharesSecrets<SelfGroup> && ReducesBfloat16<SelfGroup> &&
              ExchangesGradients<SelfGroup, float> && ExchangesByOthers<SelfGroup>);

}  // namespace lockstep
