/// \file
/// The collective between threads of one process, over their shared memory. Invariants: each
/// element is summed by one member, in the order of ranks (or of a binary tree over them), and
/// written to all; no wait for a member to come is longer than the timeout, in which time the
/// process was stopped does not count; what all have come to is carried out, so that the memory of
/// a member that left, also by an abort, is touched by nobody; an operation takes no memory.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>

#include "lockstep/collectives/spin.hpp"
#include "lockstep/collectives/sum_members.hpp"
#include "lockstep/concepts/collective.hpp"
#include "lockstep/core/durations.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep {

/// What the members of a group of threads share.
///
/// A member whose partners do not come before the timeout throws CollectiveTimeout, which names
/// them; the others then throw CollectiveAborted.
/// \code
///   lockstep::ThreadGroup group({.size = 4});
///   // in thread r:
///   lockstep::ThreadGroup::Member member(group, r);
///   member.all_reduce(gradients, n);
/// \endcode
class ThreadGroup {
 public:
  /// How many members there are, and how they wait and add.
  struct Options {
    std::size_t size = 1;
    std::chrono::nanoseconds timeout = std::chrono::seconds(30);  ///< of each wait
    SumOrder order = SumOrder::ranks;
    /// Looks so many times before a member sleeps; 0 if there are more threads than cores.
    int spins = 0;
  };

  /// \throws UsageError for no member or more than `max_size`.
  explicit ThreadGroup(const Options& options) : options_(options) {
    if (options.size < 1 || options.size > max_size)
      throw UsageError({"thread group: ", options.size, " members; there may be 1 to ", max_size});
    seats_ = std::make_unique<Seat[]>(options.size);
    // The longest duration cannot be added to the time of today.
    options_.timeout =
        std::min<std::chrono::nanoseconds>(options.timeout, std::chrono::hours(8760));
  }

  static constexpr std::size_t max_size = 256;

  std::size_t size() const { return options_.size; }
  SumOrder order() const { return options_.order; }
  std::chrono::nanoseconds timeout() const { return options_.timeout; }

  /// Ends the operation to which not all members have come, and all that follow. From any thread.
  void abort() {
    {
      const std::scoped_lock lock(mutex_);
      aborted_.store(true, std::memory_order_release);
    }
    changed_.notify_all();
  }

  /// After an abort, when no member is in an operation: as if new.
  void reset() {
    const std::scoped_lock lock(mutex_);
    for (std::size_t r = 0; r < size(); ++r) seats_[r].arrivals.store(0, std::memory_order_relaxed);
    arrived_.store(0, std::memory_order_relaxed);
    aborted_.store(false, std::memory_order_release);
  }

  class Member;

 private:
  enum class Operation : std::uint8_t { all_reduce, broadcast, all_gather, barrier };

  /// What a member brings to an operation. All bring the same but for the pointers.
  struct Call {
    Operation operation{};
    std::size_t n = 0, m = 0, root = 0;
    const char* kind = "";    // of the elements: "float", "int", "uint", "byte"
    std::size_t element = 0;  // their bytes
    const void* p = nullptr;
    void* sums = nullptr;

    bool agrees(const Call& o) const {
      return operation == o.operation && n == o.n && m == o.m && root == o.root &&
             *kind == *o.kind && element == o.element;
    }
  };

  struct alignas(64) Seat {
    Call call;
    std::atomic<std::uint64_t> arrivals{0};
  };

  template <class T>
  static constexpr const char* kind_of() {
    return std::is_floating_point_v<T> ? "float"
           : !std::is_integral_v<T>    ? "byte"
           : std::is_signed_v<T>       ? "int"
                                       : "uint";
  }

  static const char* name_of(Operation operation) {
    constexpr std::array names{"all_reduce", "broadcast", "all_gather", "barrier"};
    return names[static_cast<std::size_t>(operation)];
  }

  /// Returns when all members are here; the last one wakes the others. If the meeting `may_fail`,
  /// whether it took place is decided under the mutex, so that all members see it alike.
  void meet(std::size_t rank, bool may_fail, int spins) {
    const std::uint64_t meeting = meeting_.load(std::memory_order_acquire);
    seats_[rank].arrivals.fetch_add(1, std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size()) {
      arrived_.store(0, std::memory_order_relaxed);
      {
        const std::scoped_lock lock(mutex_);
        if (may_fail && aborted_.load(std::memory_order_relaxed))
          refuse(rank, seats_[rank].call.operation);
        meeting_.store(meeting + 1, std::memory_order_release);
      }
      changed_.notify_all();
      return;
    }
    const auto over = [&] { return meeting_.load(std::memory_order_acquire) != meeting; };
    if (detail::spin_until(spins, over)) return;
    std::unique_lock lock(mutex_);
    if (!may_fail) {
      changed_.wait(lock, over);
      return;
    }
    wait(lock, [&] { return over() || aborted_.load(std::memory_order_relaxed); });
    if (over()) return;
    if (aborted_.load(std::memory_order_relaxed)) refuse(rank, seats_[rank].call.operation);
    aborted_.store(true, std::memory_order_release);
    lock.unlock();
    changed_.notify_all();
    miss(rank);
  }

  /// Until `done`, or for the timeout. Time in which the whole process was stopped (Ctrl-Z, a
  /// debugger, a frozen container) does not count: then a slice of the timeout takes far longer
  /// than it should, and at least one more follows it, in which the others can come.
  template <class Done>
  void wait(std::unique_lock<std::mutex>& lock, const Done& done) {
    using clock = std::chrono::steady_clock;
    const auto slice = std::min<std::chrono::nanoseconds>(
        std::max<std::chrono::nanoseconds>(options_.timeout / 8, std::chrono::milliseconds(1)),
        std::chrono::seconds(1));
    bool was_stopped = false;
    for (auto left = options_.timeout; left.count() > 0 || was_stopped;) {
      const auto begin = clock::now();
      const auto next = left.count() > 0 ? std::min(slice, left) : slice;
      if (changed_.wait_until(lock, begin + next, done)) return;
      was_stopped = clock::now() - begin > 2 * next + std::chrono::milliseconds(100);
      left -= next;
    }
  }

  /// Publishes the call, and returns when those of all members may be read.
  void begin(std::size_t rank, const Call& call, int spins) {
    // The others may still compare the calls that ended the group.
    if (aborted_.load(std::memory_order_acquire)) refuse(rank, call.operation);
    seats_[rank].call = call;
    meet(rank, true, spins);
    for (std::size_t r = 0; r < size(); ++r)
      if (!seats_[r].call.agrees(call)) disagree(r, rank);
  }

  /// Returns when nobody touches the members' memory any more. They are all on their way here, so
  /// neither an abort nor a deadline ends this wait.
  void end(std::size_t rank) { meet(rank, false, options_.spins); }

  [[noreturn, gnu::noinline, gnu::cold]] void refuse(std::size_t rank, Operation operation) {
    throw CollectiveAborted(
        {name_of(operation), ": replica ", rank, " stopped, since another replica failed"});
  }

  [[noreturn, gnu::noinline, gnu::cold]] void miss(std::size_t rank) {
    const std::uint64_t mine = seats_[rank].arrivals.load(std::memory_order_relaxed);
    std::string missing;
    for (std::size_t r = 0; r < size(); ++r)
      if (seats_[r].arrivals.load(std::memory_order_relaxed) < mine)
        missing += text({missing.empty() ? "" : ", ", r});
    throw CollectiveTimeout(
        {name_of(seats_[rank].call.operation), ": replica ", rank, " waited ",
         std::chrono::duration_cast<std::chrono::milliseconds>(options_.timeout).count(),
         " ms for replica ", missing,
         ", which did not come; it hangs, or it is slower than the timeout allows"});
  }

  // The calls are compared by all members, so all of them throw, and none is left behind.
  [[noreturn, gnu::noinline, gnu::cold]] void disagree(std::size_t other, std::size_t rank) {
    const Call a = seats_[other].call, b = seats_[rank].call;
    abort();
    throw UsageError({"thread group: replica ", other, " calls ", name_of(a.operation), " of ", a.n,
                      " elements of ", a.kind, 8 * a.element, ", replica ", rank, " calls ",
                      name_of(b.operation), " of ", b.n, " elements of ", b.kind, 8 * b.element,
                      "; all replicas must make the same calls in the same order"});
  }

  Options options_;
  std::unique_ptr<Seat[]> seats_;
  std::mutex mutex_;
  std::condition_variable changed_;
  alignas(64) std::atomic<std::size_t> arrived_{0};
  alignas(64) std::atomic<std::uint64_t> meeting_{0};
  std::atomic<bool> aborted_{false};
};

/// One thread's place in a ThreadGroup. Its operations are called by one thread at a time; all
/// members must be given equal sizes. \throws CollectiveTimeout, CollectiveAborted, UsageError if
/// the members' calls differ.
class ThreadGroup::Member {
 public:
  /// `group` must outlive the member.
  Member(ThreadGroup& group, std::size_t rank)
      : group_(&group), rank_(rank), spins_(group.options_.spins) {
    if (rank >= group.size())
      throw UsageError({"thread group: no rank ", rank, " among ", group.size(), " members"});
  }

  /// The same member, in a thread whose core others need: it sleeps at once while it waits for
  /// others to come.
  Member in_background() const {
    Member member = *this;
    member.spins_ = 0;
    return member;
  }

  std::size_t rank() const { return rank_; }
  std::size_t size() const { return group_->size(); }
  void abort() { group_->abort(); }

  template <class T>
  void all_reduce(T* p, std::size_t n) {
    all_reduce(p, n, nullptr, 0);
  }

  /// Member r sums the r-th part of the elements and writes it to all: reduce-scatter and
  /// all-gather in one pass over the shared memory. The first member adds the few `sums`.
  template <class T>
  void all_reduce(T* p, std::size_t n, double* sums, std::size_t m) {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>,
                  "lockstep::ThreadGroup: all_reduce adds numbers; give it an arithmetic type");
    group_->begin(rank_, {Operation::all_reduce, n, m, 0, kind_of<T>(), sizeof(T), p, sums},
                  spins_);
    constexpr std::size_t line = 64 / sizeof(T);  // so that no two members write to a cache line
    const Slice lines = slice_of((n + line - 1) / line, size(), rank_);
    const std::size_t first = lines.first * line, end = std::min(n, first + lines.count * line);
    if (first < end) {
      std::array<T*, max_size> part;
      for (std::size_t r = 0; r < size(); ++r)
        part[r] = static_cast<T*>(const_cast<void*>(call(r).p)) + first;
      detail::sum_members(part.data(), size(), end - first, group_->options_.order);
    }
    if (rank_ == 0 && m > 0) {
      std::array<double*, max_size> part;
      for (std::size_t r = 0; r < size(); ++r) part[r] = static_cast<double*>(call(r).sums);
      detail::sum_members(part.data(), size(), m, group_->options_.order);
    }
    group_->end(rank_);
  }

  template <class T>
  void broadcast(T* p, std::size_t n, std::size_t root) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (root >= size()) {
      abort();
      throw UsageError({"broadcast: no root ", root, " among ", size(), " members"});
    }
    group_->begin(rank_, {Operation::broadcast, n, 0, root, kind_of<T>(), sizeof(T), p, nullptr},
                  spins_);
    if (rank_ != root && n > 0) std::memcpy(p, call(root).p, n * sizeof(T));
    group_->end(rank_);
  }

  template <class T>
  void all_gather(const T* p, std::size_t n, T* out) {
    static_assert(std::is_trivially_copyable_v<T>);
    group_->begin(rank_, {Operation::all_gather, n, 0, 0, kind_of<T>(), sizeof(T), p, nullptr},
                  spins_);
    for (std::size_t r = 0; r < size() && n > 0; ++r)
      std::memcpy(out + r * n, call(r).p, n * sizeof(T));
    group_->end(rank_);
  }

  /// In memory that these threads share anyway.
  void share_secret(std::byte* p, std::size_t n) { broadcast(p, n, 0); }

  void barrier() {
    group_->begin(rank_, {Operation::barrier, 0, 0, 0, "", 0, nullptr, nullptr}, spins_);
    group_->end(rank_);
  }

 private:
  const Call& call(std::size_t rank) const { return group_->seats_[rank].call; }

  ThreadGroup* group_;
  std::size_t rank_;
  int spins_;
};

static_assert(AllReduces<ThreadGroup::Member, float> &&
              AllReducesWithSums<ThreadGroup::Member, float> &&
              Broadcasts<ThreadGroup::Member, float> && AllGathers<ThreadGroup::Member, float> &&
              Barriers<ThreadGroup::Member> && SharesSecrets<ThreadGroup::Member>);

}  // namespace lockstep
