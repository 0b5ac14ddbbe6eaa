/// \file
/// The exchange of a replica's gradients in its own thread, when backward is over. Invariants: what
/// was posted is exchanged in `finish`, in one message if the ranges adjoin; it takes no memory.
#pragma once

#include <cstddef>
#include <utility>

#include "lockstep/concepts/collective.hpp"

namespace lockstep {

/// For a group whose exchange is work of the cores, when backward has them all: a second thread
/// would only interrupt it. See CommunicationThread for the exchange that overlaps.
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

  /// Backward goes from the end of the buffer to its begin. A range that does not end where the
  /// last one begins sends what was posted before. \throws what the collective threw.
  void post(T* p, std::size_t n) {
    if (n_ > 0 && p + n != p_) member_.all_reduce(p_, std::exchange(n_, 0));
    p_ = p;
    n_ += n;
  }
  /// \throws what the collective threw.
  void finish(T* p, std::size_t n, double* sums, std::size_t m) {
    post(p, n);
    member_.all_reduce(p_, std::exchange(n_, 0), sums, m);
  }
  /// After an error: forgets what was posted.
  void reset() { n_ = 0; }

 private:
  C member_;
  T* p_ = nullptr;
  std::size_t n_ = 0;  // posted, from p_ on
};

}  // namespace lockstep
