/// \file
/// The exchange of a replica's gradients in the replica's thread, after backward. Invariants:
/// posted ranges are exchanged in `finish`, as one message if they are adjacent; nothing allocates.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/concepts/collective.hpp"
#include "lockstep/core/owned_ranges.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep {

/// Collects the posted ranges and all-reduces them, or scatters their sums, when backward is over.
///
/// Used where the all-reduce needs CPU time and backward already occupies every core, so that a
/// second thread would only preempt it. CommunicationThread is the exchange that overlaps.
/// \code
///   lockstep::ExchangeAtEnd<lockstep::ThreadGroup::Member, float> exchange(member);
///   exchange.post(gradients + 320, 1000);           // notes the range
///   exchange.finish(gradients, 320, sums, 2);       // all 1320 are summed now
/// \endcode
template <class C, class T>
  requires AllReduces<C, T> && AllReducesWithSums<C, T>
class ExchangeAtEnd {
 public:
  explicit ExchangeAtEnd(C member) : member_(std::move(member)) {}

  /// Prepends p[0..n) to the pending range: backward fills the buffer from its end to its start. If
  /// p[0..n) is not adjacent, the pending range is sent first. \throws what the collective threw.
  void post(T* p, std::size_t n) {
    if (n_ > 0 && p + n != p_) {
      const ExchangeOperation bucket(listener_, "bucket", n_ * sizeof(T));
      member_.all_reduce(p_, std::exchange(n_, 0));
    }
    p_ = p;
    n_ += n;
  }
  /// All-reduces the pending ranges, p[0..n) and the sums. \throws what the collective threw.
  void finish(T* p, std::size_t n, double* sums, std::size_t m) {
    post(p, n);
    const ExchangeOperation last(listener_, n_ > 0 ? "bucket" : "sums", n_ * sizeof(T));
    member_.all_reduce(p_, std::exchange(n_, 0), sums, m);
  }
  /// The same for members that need their share of the sums.
  void post(T* all, Slice part, std::span<const Slice> shares)
    requires ReduceScatters<C, T>
  {
    if (n_ > 0 && all + part.first + part.count != p_) scatter(all, shares);
    p_ = all + part.first;
    n_ += part.count;
  }
  void finish(T* all, Slice part, std::span<const Slice> shares, double* sums, std::size_t m)
    requires ReduceScatters<C, T>
  {
    post(all, part, shares);
    if (n_ > 0) scatter(all, shares);
    const ExchangeOperation last(listener_, "sums", 0);
    member_.all_reduce(all, 0, sums, m);
  }
  /// The same for ranges that `by` exchanges.
  void post(RangeExchange& by, Slice part)
    requires std::constructible_from<CollectiveRef, C&>
  {
    if (part_.count > 0 && part.first + part.count != part_.first) exchange(by);
    part_ = {part.first, part_.count + part.count};
  }
  void finish(RangeExchange& by, Slice part, double* sums, std::size_t m)
    requires std::constructible_from<CollectiveRef, C&>
  {
    post(by, part);
    exchange(by);
    const ExchangeOperation last(listener_, "sums", 0);
    member_.all_reduce(static_cast<T*>(nullptr), 0, sums, m);
  }
  /// Drops the pending range after an error.
  void reset() {
    n_ = 0;
    part_.count = 0;
  }
  /// Reports each all-reduce to `own`; null: no longer.
  void observe(ExchangeListener* own, ExchangeListener*) { listener_ = own; }

 private:
  void exchange(RangeExchange& by) {
    const ExchangeOperation bucket(listener_, "bucket", part_.count * sizeof(T));
    by.exchange(CollectiveRef(member_), {part_.first, std::exchange(part_.count, 0)});
  }
  /// Reduce-scatters the pending range, a part of `all`.
  void scatter(T* all, std::span<const Slice> shares) {
    const ExchangeOperation bucket(listener_, "bucket", n_ * sizeof(T));
    const Slice pending{static_cast<std::size_t>(p_ - all), std::exchange(n_, 0)};
    each_round_within(shares, member_.size(), pending, parts_,
                      [&](std::span<const Slice> parts) { member_.reduce_scatter(all, parts); });
  }

  C member_;
  T* p_ = nullptr;
  std::size_t n_ = 0;         // pending elements from p_ on
  Slice part_{};              // pending elements that a RangeExchange exchanges
  std::vector<Slice> parts_;  // kept so that a step allocates nothing
  ExchangeListener* listener_ = nullptr;
};

}  // namespace lockstep
