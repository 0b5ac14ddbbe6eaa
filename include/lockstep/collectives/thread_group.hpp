/// \file
/// The collective between threads of one process, over their shared memory. Invariants: each
/// element is summed by one member, in the order of ranks (or of a binary tree over them), and
/// written to all; no wait for a member to come is longer than the timeout, in which time the
/// process was stopped does not count; what all have come to is carried out, so that the memory of
/// a member that left, also by an abort, is touched by nobody; an operation takes no memory.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <type_traits>

#include "lockstep/collectives/sum_members.hpp"
#include "lockstep/concepts/collective.hpp"
#include "lockstep/core/config.hpp"

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
  LOCKSTEP_COLD_DECL explicit ThreadGroup(const Options& options);

  static constexpr std::size_t max_size = 256;

  std::size_t size() const { return options_.size; }
  SumOrder order() const { return options_.order; }
  std::chrono::nanoseconds timeout() const { return options_.timeout; }

  /// Ends the operation to which not all members have come, and all that follow. From any thread.
  LOCKSTEP_COLD_DECL void abort();

  /// After an abort, when no member is in an operation: as if new.
  LOCKSTEP_COLD_DECL void reset();

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

    LOCKSTEP_DECL bool agrees(const Call& o) const;
  };

  struct alignas(64) MemberState {
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
  LOCKSTEP_COLD_DECL static const char* name_of(Operation operation);

  /// Returns when all members are here; the last one wakes the others. If the meeting `may_fail`,
  /// whether it took place is decided under the mutex, so that all members see it alike.
  LOCKSTEP_DECL void arrive_and_wait(std::size_t rank, bool may_fail, int spins);

  /// Until `done`, or for the timeout. Time in which the whole process was stopped (Ctrl-Z, a
  /// debugger, a frozen container) does not count: then a slice of the timeout takes far longer
  /// than it should, and at least one more follows it, in which the others can come.
  template <class Done>
  void wait(std::unique_lock<std::mutex>& lock, const Done& done);

  /// Publishes the call, and returns when those of all members may be read.
  LOCKSTEP_DECL void begin(std::size_t rank, const Call& call, int spins);

  /// Returns when nobody touches the members' memory any more. They are all on their way here, so
  /// neither an abort nor a deadline ends this wait.
  void end(std::size_t rank) { arrive_and_wait(rank, false, options_.spins); }

  [[noreturn]] LOCKSTEP_COLD_DECL void throw_aborted(std::size_t rank, Operation operation);
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_timeout(std::size_t rank);

  // The calls are compared by all members, so all of them throw, and none is left behind.
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_mismatch(std::size_t other, std::size_t rank);

  Options options_;
  std::unique_ptr<MemberState[]> members_;
  std::mutex mutex_;
  std::condition_variable changed_;
  alignas(64) std::atomic<std::size_t> arrived_{0};
  alignas(64) std::atomic<std::uint64_t> phase_{0};
  std::atomic<bool> aborted_{false};
};

/// One thread's place in a ThreadGroup. Its operations are called by one thread at a time; all
/// members must be given equal sizes. \throws CollectiveTimeout, CollectiveAborted, UsageError if
/// the members' calls differ.
class ThreadGroup::Member {
 public:
  /// `group` must outlive the member.
  LOCKSTEP_DECL Member(ThreadGroup& group, std::size_t rank);

  /// The same member, in a thread whose core others need: it sleeps at once while it waits for
  /// others to come.
  LOCKSTEP_DECL Member in_background() const;

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
    reduce({Operation::all_reduce, n, m, 0, kind_of<T>(), sizeof(T), p, sums},
           &detail::sum_members_from<T>);
  }

  template <class T>
  void broadcast(T* p, std::size_t n, std::size_t root) {
    static_assert(std::is_trivially_copyable_v<T>);
    send({Operation::broadcast, n, 0, root, kind_of<T>(), sizeof(T), p, nullptr}, p);
  }

  template <class T>
  void all_gather(const T* p, std::size_t n, T* out) {
    static_assert(std::is_trivially_copyable_v<T>);
    gather({Operation::all_gather, n, 0, 0, kind_of<T>(), sizeof(T), p, nullptr}, out);
  }

  /// In memory that these threads share anyway.
  void share_secret(std::byte* p, std::size_t n) { broadcast(p, n, 0); }

  LOCKSTEP_DECL void barrier();

 private:
  LOCKSTEP_DECL void reduce(const Call& mine, detail::SumMembers sum);
  LOCKSTEP_DECL void send(const Call& mine, void* to);
  LOCKSTEP_DECL void gather(const Call& mine, void* to);
  const Call& call(std::size_t rank) const { return group_->members_[rank].call; }

  ThreadGroup* group_;
  std::size_t rank_;
  int spins_;
};

static_assert(AllReduces<ThreadGroup::Member, float> &&
              AllReducesWithSums<ThreadGroup::Member, float> &&
              Broadcasts<ThreadGroup::Member, float> && AllGathers<ThreadGroup::Member, float> &&
              Barriers<ThreadGroup::Member> && SharesSecrets<ThreadGroup::Member>);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/thread_group.ipp"
#endif
