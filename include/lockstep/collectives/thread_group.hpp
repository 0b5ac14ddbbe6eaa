/// \file
/// The collective between threads of one process, over shared memory. Invariants: each element is
/// summed by one member, in the order of ranks (or of a binary tree over them), and written to all;
/// no wait for an absent member exceeds the timeout, which excludes time in which the process was
/// suspended; an operation that all members have entered runs to completion, so that no member
/// accesses the memory of one that has left, even after an abort; operations do not allocate.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "lockstep/collectives/algorithms/collective_call.hpp"
#include "lockstep/collectives/algorithms/sum_members.hpp"
#include "lockstep/collectives/algorithms/sum_parts.hpp"
#include "lockstep/collectives/algorithms/typed_collective.hpp"
#include "lockstep/concepts/collective.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

/// The state that the members of a group of threads share.
///
/// Each operation has two phases, each of them a barrier (`arrive_and_wait`):
///
///     begin: publish Call ──> all arrived? ──> compare the calls ──> work on shared memory ──> end
///                              │ timeout: CollectiveTimeout          (cannot fail any more)
///                              │ abort:   CollectiveAborted
///
/// A member whose peers do not arrive before the timeout throws CollectiveTimeout, which names
/// them; the others then throw CollectiveAborted.
/// \code
///   lockstep::ThreadGroup group({.size = 4});
///   // in thread r:
///   lockstep::ThreadGroup::Member member(group, r);
///   member.all_reduce(gradients, n);
/// \endcode
class ThreadGroup {
 public:
  /// The number of members, and how they wait and add.
  struct Options {
    std::size_t size = 1;
    std::chrono::nanoseconds timeout = std::chrono::seconds(30);  ///< of each wait
    SumOrder order = SumOrder::ranks;
    /// Polls before a member sleeps; use 0 if there are more threads than cores.
    int spins = 0;
  };

  /// \throws UsageError if the size is 0 or above `max_size`.
  LOCKSTEP_COLD_DECL explicit ThreadGroup(const Options& options);

  static constexpr std::size_t max_size = 256;

  std::size_t size() const { return options_.size; }
  SumOrder order() const { return options_.order; }
  std::chrono::nanoseconds timeout() const { return options_.timeout; }

  /// Ends the operation that not all members have entered, and all later ones. Callable from any
  /// thread.
  LOCKSTEP_COLD_DECL void abort();

  /// Makes an aborted group usable again; call it when no member is in an operation.
  LOCKSTEP_COLD_DECL void reset();

  class Member;

 private:
  /// One member's call, and where its elements and sums lie.
  struct Call {
    detail::CollectiveCall call{};
    const std::byte* p = nullptr;
    double* sums = nullptr;
  };

  struct alignas(64) MemberState {  // one cache line or more, against false sharing
    Call call;
    std::atomic<std::uint64_t> arrivals{0};
  };

  /// A barrier: the last member to arrive advances the phase and wakes the others. If it `may_fail`
  /// (by timeout or abort), success is decided under the mutex, so that all members agree on it.
  LOCKSTEP_DECL void arrive_and_wait(std::size_t rank, bool may_fail, int spins);

  /// Publishes the call, waits until all members have published theirs, and compares them.
  LOCKSTEP_DECL void begin(std::size_t rank, const Call& call, int spins);

  /// Returns when no member accesses another's memory any more. All members are in the operation,
  /// so neither an abort nor a timeout ends this wait.
  void end(std::size_t rank) { arrive_and_wait(rank, false, options_.spins); }

  [[noreturn]] LOCKSTEP_COLD_DECL void throw_aborted(std::size_t rank,
                                                     const detail::CollectiveCall& call);
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_timeout(std::size_t rank);

  // Every member compares the calls, so all of them throw and none keeps waiting.
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_mismatch(std::size_t other, std::size_t rank);

  Options options_;
  std::unique_ptr<MemberState[]> members_;
  std::mutex mutex_;
  std::condition_variable changed_;
  alignas(64) std::atomic<std::size_t> arrived_{0};
  alignas(64) std::atomic<std::uint64_t> phase_{0};
  std::atomic<bool> aborted_{false};
};

/// One thread's membership in a ThreadGroup. Its operations are called by one thread at a time; all
/// members must pass equal sizes. \throws CollectiveTimeout, CollectiveAborted, UsageError if the
/// members' calls differ.
class ThreadGroup::Member : public detail::TypedCollective<Member> {
 public:
  /// `group` must outlive the member.
  LOCKSTEP_DECL Member(ThreadGroup& group, std::size_t rank);

  /// The same member for a background thread, whose core others need: it sleeps without polling
  /// while it waits for peers to arrive.
  LOCKSTEP_DECL Member in_background() const;

  std::size_t rank() const { return rank_; }
  std::size_t size() const { return group_->size(); }
  void abort() { group_->abort(); }

  /// A broadcast from member 0: the secret stays in memory that these threads share anyway.
  void share_secret(std::byte* p, std::size_t n) { broadcast(p, n, 0); }

 private:
  friend class detail::TypedCollective<Member>;

  /// Member r sums part r of the elements and writes it to all members: reduce-scatter and
  /// all-gather in one pass over shared memory. Member 0 adds the few `sums`.
  LOCKSTEP_DECL void reduce(const detail::CollectiveCall& call, std::byte* p,
                            const detail::Additions& add, double* sums);
  LOCKSTEP_DECL void scatter(const detail::CollectiveCall& call, std::byte* p,
                             const detail::Additions& add, std::span<const Slice> ranges,
                             Slice from);
  LOCKSTEP_DECL void send(const detail::CollectiveCall& call, std::byte* p);
  LOCKSTEP_DECL void gather(const detail::CollectiveCall& call, const std::byte* p, std::byte* out);
  LOCKSTEP_DECL void gather(const detail::CollectiveCall& call, std::byte* p,
                            std::span<const Slice> ranges);
  LOCKSTEP_DECL void wait(const detail::CollectiveCall& call);
  const Call& published(std::size_t rank) const { return group_->members_[rank].call; }

  ThreadGroup* group_;
  std::size_t rank_;
  int spins_;
};

static_assert(AllReduces<ThreadGroup::Member, float> &&
              AllReducesWithSums<ThreadGroup::Member, float> &&
              Broadcasts<ThreadGroup::Member, float> && AllGathers<ThreadGroup::Member, float> &&
              ReduceScatters<ThreadGroup::Member, float> &&
              AllGathersRanges<ThreadGroup::Member, float> && Barriers<ThreadGroup::Member> &&
              SharesSecrets<ThreadGroup::Member>);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/thread_group.ipp"
#endif
