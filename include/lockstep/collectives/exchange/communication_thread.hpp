/// \file
/// The thread that exchanges one replica's gradients while backward runs. Invariants: ranges are
/// exchanged in the order in which they were posted; after a failure nothing is exchanged until
/// `reset`; posting does not allocate.
#pragma once

#include <array>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/concepts/collective.hpp"
#include "lockstep/core/owned_ranges.hpp"
#include "lockstep/core/process/cores.hpp"
#include "lockstep/core/process/threads.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep {

/// Runs the all-reduces of collective `C`, or its reduce-scatters, in a background thread while
/// backward continues.
///
/// A ring of `capacity` ranges connects the two threads; both counters only grow, under mutex_:
///
///     replica's thread   post(p, n) ──> queue_[posted_++ % capacity]
///     thread_                           queue_[done_ % capacity] ──> all_reduce, then ++done_
///     replica's thread   finish: waits for done_ == posted_, then all-reduces the last range
///
/// None of the waits has a deadline, because each operation of the collective has one.
/// \code
///   lockstep::CommunicationThread<lockstep::ThreadGroup::Member, float> exchange(member);
///   exchange.post(gradients + 320, 1000);           // returns at once
///   exchange.finish(gradients, 320, sums, 2);       // all of it is summed now
/// \endcode
template <class C, class T>
  requires AllReduces<C, T> && AllReducesWithSums<C, T>
class CommunicationThread {
 public:
  explicit CommunicationThread(C member) : CommunicationThread(member, member) {}
  /// `background` is the same member of the group, with the wait policy of a background thread.
  CommunicationThread(C member, C background)
      : member_(std::move(member)),
        background_(std::move(background)),
        thread_(detail::start_computing_thread([this] {
          detail::leave_openmp_place();
          run();
        })) {}
  CommunicationThread(const CommunicationThread&) = delete;
  CommunicationThread& operator=(const CommunicationThread&) = delete;
  /// Waits for all posted ranges; abort the collective first if its peers may not arrive.
  ~CommunicationThread() {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  /// Enqueues p[0..n). Blocks only while `capacity` ranges are pending. \throws what the collective
  /// threw for an earlier range.
  void post(T* p, std::size_t n) { enqueue({p, {0, n}, {}, nullptr}); }
  /// The same for members that need their share of the sums.
  void post(T* all, Slice part, std::span<const Slice> shares)
    requires ReduceScatters<C, T>
  {
    enqueue({all, part, shares, nullptr});
  }

  /// The same for ranges that `by` exchanges.
  void post(RangeExchange& by, Slice part)
    requires std::constructible_from<CollectiveRef, C&>
  {
    enqueue({nullptr, part, {}, &by});
  }

  /// Waits for the pending ranges, then all-reduces the last range and the sums in the calling
  /// thread, which has nothing else to do. \throws what the collective threw.
  void finish(T* p, std::size_t n, double* sums, std::size_t m) {
    finish_with([&] {
      const ExchangeOperation last(listener_, n > 0 ? "bucket" : "sums", n * sizeof(T));
      member_.all_reduce(p, n, sums, m);
    });
  }
  void finish(T* all, Slice part, std::span<const Slice> shares, double* sums, std::size_t m)
    requires ReduceScatters<C, T>
  {
    finish_with([&] {
      if (part.count > 0) {
        const ExchangeOperation bucket(listener_, "bucket", part.count * sizeof(T));
        scatter(member_, {all, part, shares, nullptr});
      }
      const ExchangeOperation last(listener_, "sums", 0);
      member_.all_reduce(all, 0, sums, m);
    });
  }

  void finish(RangeExchange& by, Slice part, double* sums, std::size_t m)
    requires std::constructible_from<CollectiveRef, C&>
  {
    finish_with([&] {
      exchange_by(member_, listener_, {nullptr, part, {}, &by});
      const ExchangeOperation last(listener_, "sums", 0);
      member_.all_reduce(static_cast<T*>(nullptr), 0, sums, m);
    });
  }

  /// Call after aborting the collective: returns when the thread no longer accesses any posted
  /// range, and clears the error.
  void reset() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return posted_ == done_; });
    error_ = nullptr;
  }

  /// Reports the ranges that the background thread exchanges to `background`, the rest to `own`;
  /// null: no longer. Call it while no range is pending.
  void observe(ExchangeListener* own, ExchangeListener* background) {
    const std::scoped_lock lock(mutex_);
    listener_ = own;
    background_listener_ = background;
  }

  static constexpr std::size_t capacity = 64;  ///< of the queue, in ranges

 private:
  struct Range {
    T* p = nullptr;
    Slice part{};                     // from p on
    std::span<const Slice> shares{};  // empty: all members need all sums
    RangeExchange* by = nullptr;      // instead of a collective operation
  };

  void enqueue(const Range& range) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return posted_ - done_ < capacity || error_; });
      if (error_) std::rethrow_exception(error_);
      queue_[posted_++ % capacity] = range;
    }
    changed_.notify_all();
  }
  template <class F>
  void finish_with(const F& exchange_last) {
    {
      std::unique_lock lock(mutex_);
      const ExchangeOperation wait(posted_ != done_ ? listener_ : nullptr, "wait", 0);
      changed_.wait(lock, [&] { return posted_ == done_; });
      if (error_) std::rethrow_exception(error_);
    }
    try {
      exchange_last();
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      error_ = std::current_exception();
      throw;
    }
  }
  static void exchange_by(C& member, ExchangeListener* listener, const Range& range) {
    const ExchangeOperation bucket(listener, "bucket", range.part.count * sizeof(T));
    if constexpr (std::constructible_from<CollectiveRef, C&>)
      range.by->exchange(CollectiveRef(member), range.part);
  }
  /// Called by the replica's thread only while no range is pending.
  void scatter(C& member, const Range& range) {
    if constexpr (ReduceScatters<C, T>) {
      each_round_within(
          range.shares, member.size(), range.part, parts_,
          [&](std::span<const Slice> parts) { member.reduce_scatter(range.p, parts); });
    }
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopping_ || done_ < posted_; });
      if (done_ == posted_) return;
      const Range range = queue_[done_ % capacity];
      ExchangeListener* const listener = background_listener_;
      if (!error_) {
        std::exception_ptr failure;
        lock.unlock();
        try {
          if (range.by != nullptr) {
            exchange_by(background_, listener, range);
          } else {
            const ExchangeOperation bucket(listener, "bucket", range.part.count * sizeof(T));
            if (range.shares.empty())
              background_.all_reduce(range.p, range.part.count);
            else
              scatter(background_, range);
          }
        } catch (...) {
          failure = std::current_exception();
        }
        lock.lock();
        error_ = std::move(failure);
      }
      ++done_;
      changed_.notify_all();
    }
  }

  C member_, background_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<Range, capacity> queue_{};
  std::vector<Slice> parts_;             // kept so that a step allocates nothing
  std::uint64_t posted_ = 0, done_ = 0;  // done_ <= posted_ <= done_ + capacity
  std::exception_ptr error_;
  bool stopping_ = false;
  ExchangeListener *listener_ = nullptr, *background_listener_ = nullptr;
  std::thread thread_;  // last member: it uses all others
};

}  // namespace lockstep
