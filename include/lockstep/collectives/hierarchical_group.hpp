/// \file
/// Replicas in several processes as one group. Invariants: the members of a process synchronize in
/// their ThreadGroup, and only the first of them (the leader) communicates with other processes;
/// ranks number the replicas process by process; all members get the same bits.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/collectives/thread_group.hpp"
#include "lockstep/concepts/collective.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/exchange_allocator.hpp"
#include "lockstep/core/numbers/bfloat16.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep {

/// A two-level collective: threads of a process first, then processes. `Across` is this process'
/// member of a group of processes, such as TcpGroup.
/// \code
///     process 0: replicas 0 1      process 1: replicas 2 3      process 2: replica 4
///                 \ /                          \ /                          |
///               leader  <──── Across ────>   leader  <──── Across ────>   leader
///                 / \                          / \                          |
/// \endcode
/// An all-reduce sums within each process in the order of its ThreadGroup, then over the processes
/// in the order of `across`, and broadcasts the result within each process.
/// \code
///   // this process is the second of three, which have 2, 2 and 1 replicas
///   lockstep::HierarchicalGroup group(across, {2, 2, 1}, {.size = 2});
///   // in the thread of local replica i, which has rank 2 + i of 5:
///   lockstep::HierarchicalGroup<Across>::Member member(group, i);
/// \endcode
template <class Across>
  requires Broadcasts<Across, std::byte> && AllGathers<Across, std::byte> && Barriers<Across>
class HierarchicalGroup {
 public:
  /// `replicas[i]` is the number of replicas of process i; this process' entry equals `local.size`.
  /// `across` must outlive the group. \throws UsageError if the numbers contradict each other.
  HierarchicalGroup(Across& across, std::vector<std::size_t> replicas,
                    const ThreadGroup::Options& local)
      : across_(&across), replicas_(std::move(replicas)), local_(local) {
    if (replicas_.size() != across.size() || replicas_[across.rank()] != local.size)
      throw UsageError(
          "hierarchical group: process {} of {} has {} replicas, which differs from the list of {} "
          "processes; give all processes the same list",
          across.rank(), across.size(), local.size, replicas_.size());
    first_ = std::accumulate(replicas_.begin(),
                             replicas_.begin() + static_cast<std::ptrdiff_t>(across.rank()),
                             std::size_t{0});
    size_ = std::accumulate(replicas_.begin(), replicas_.end(), std::size_t{0});
  }

  SumOrder order() const { return local_.order(); }
  /// The timeout of waits between the members of this process.
  std::chrono::nanoseconds timeout() const { return local_.timeout(); }

  /// Ends the pending operations of this process' members. Callable from any thread.
  void abort() {
    local_.abort();
    across_->abort();
  }
  /// Call after an abort, when no member is in an operation. Only the ThreadGroup becomes usable
  /// again; a group of processes that was aborted stays so.
  void reset() { local_.reset(); }

  class Member;

 private:
  Across* across_;
  std::vector<std::size_t> replicas_;
  ThreadGroup local_;
  std::size_t first_ = 0, size_ = 0;
  std::vector<std::byte> gathered_own_, gathered_;  // buffers of the leader's all_gather
};

/// One replica's view of the group: the operations of ThreadGroup::Member over all processes.
template <class Across>
  requires Broadcasts<Across, std::byte> && AllGathers<Across, std::byte> && Barriers<Across>
class HierarchicalGroup<Across>::Member {
 public:
  /// Whether the group has the operations by ranges.
  static constexpr bool has_ranges =
      ReduceScatters<Across, float> && AllGathersRanges<Across, std::byte>;

  /// `local` is the index among this process' replicas. `group` must outlive the member.
  Member(HierarchicalGroup& group, std::size_t local)
      : group_(&group), local_(group.local_, local) {}

  Member in_background() const {
    Member member = *this;
    member.local_ = local_.in_background();
    return member;
  }

  /// Allocates memory that the processes exchange in place; null for all members but the leader,
  /// since only its memory is exchanged.
  std::shared_ptr<ExchangeAllocator> exchange_allocator()
    requires requires(Across& across) { across.exchange_allocator(); }
  {
    return is_leader() ? group_->across_->exchange_allocator() : nullptr;
  }

  std::size_t rank() const { return group_->first_ + local_.rank(); }
  std::size_t size() const { return group_->size_; }
  void abort() { group_->abort(); }

  template <class T>
  void all_reduce(T* p, std::size_t n) {
    all_reduce(p, n, nullptr, 0);
  }

  template <class T>
  void all_reduce(T* p, std::size_t n, double* sums, std::size_t m) {
    abort_on_error([&] {
      if (local_.size() > 1) local_.all_reduce(p, n, sums, m);
      if (is_leader()) group_->across_->all_reduce(p, n, sums, m);
      broadcast_locally(p, n);
      if (m > 0) broadcast_locally(sums, m);
    });
  }

  /// See ReducesBfloat16. The sum within each process is rounded, too.
  void all_reduce_bfloat16(bfloat16* p, std::size_t n)
    requires ReducesBfloat16<Across>
  {
    abort_on_error([&] {
      if (local_.size() > 1) local_.all_reduce_bfloat16(p, n);
      if (is_leader()) group_->across_->all_reduce_bfloat16(p, n);
      broadcast_locally(p, n);
    });
  }

  template <class T>
  void broadcast(T* p, std::size_t n, std::size_t root) {
    if (root >= size())
      throw UsageError("broadcast: root is {}; it must be below the group's size, {}", root,
                       size());
    std::size_t process = 0, first = 0;
    while (root >= first + group_->replicas_[process]) first += group_->replicas_[process++];
    abort_on_error([&] {
      if (process == group_->across_->rank() && local_.size() > 1)
        local_.broadcast(p, n, root - first);
      if (is_leader())
        group_->across_->broadcast(reinterpret_cast<std::byte*>(p), n * sizeof(T), process);
      broadcast_locally(p, n);
    });
  }

  template <class T>
  void all_gather(const T* p, std::size_t n, T* out) {
    T* const own = out + group_->first_ * n;
    abort_on_error([&] {
      if (local_.size() > 1)
        local_.all_gather(p, n, own);
      else if (n > 0)
        std::memmove(own, p, n * sizeof(T));
      if (is_leader()) gather(reinterpret_cast<std::byte*>(out), n * sizeof(T));
      broadcast_locally(out, n * size());
    });
  }

  /// See ReduceScatters. \throws UsageError if `from` divides a process.
  template <class T>
  void reduce_scatter(T* p, std::span<const Slice> ranges)
    requires has_ranges
  {
    reduce_scatter(p, ranges, Slice{0, size()});
  }
  template <class T>
  void reduce_scatter(T* p, std::span<const Slice> ranges, Slice from)
    requires has_ranges
  {
    abort_on_error([&] {
      const Slice processes = processes_of(from);
      if (local_.size() > 1)
        for (const Slice& range : ranges) local_.all_reduce(p + range.first, range.count);
      if (is_leader())
        each_part(ranges, [&](std::span<const Slice> part) {
          group_->across_->reduce_scatter(p, part, processes);
        });
      broadcast_locally(p, own_of(ranges));
    });
  }
  template <class T>
  void all_gather(T* p, std::span<const Slice> ranges)
    requires has_ranges
  {
    abort_on_error([&] {
      const std::span<const Slice> own = own_of(ranges);
      if (local_.size() > 1) local_.all_gather(p, own);
      if (is_leader())
        each_part(ranges,
                  [&](std::span<const Slice> part) { group_->across_->all_gather(p, part); });
      broadcast_locally(p, ranges);
    });
  }

  /// Shares the secret between processes by the means of `Across`.
  void share_secret(std::byte* p, std::size_t n)
    requires SharesSecrets<Across>
  {
    abort_on_error([&] {
      if (is_leader()) group_->across_->share_secret(p, n);
      broadcast_locally(p, n);
    });
  }

  void barrier() {
    abort_on_error([&] {
      if (local_.size() > 1) local_.barrier();
      if (is_leader()) group_->across_->barrier();
      if (local_.size() > 1) local_.barrier();
    });
  }

 private:
  bool is_leader() const { return local_.rank() == 0; }
  /// The ranges of this process' replicas.
  std::span<const Slice> own_of(std::span<const Slice> ranges) const {
    if (ranges.size() != size())
      throw UsageError("ranges: there are {}; give one for each of the {} members", ranges.size(),
                       size());
    return ranges.subspan(group_->first_, local_.size());
  }
  /// Calls f with the ranges of the first replicas of all processes, then with those of the second.
  template <class F>
  void each_part(std::span<const Slice> ranges, const F& f) const {
    const std::vector<std::size_t>& replicas = group_->replicas_;
    std::vector<Slice> part(replicas.size());
    for (std::size_t i = 0; i < *std::max_element(replicas.begin(), replicas.end()); ++i) {
      for (std::size_t process = 0, first = 0; process < replicas.size(); ++process) {
        part[process] = i < replicas[process] ? ranges[first + i] : Slice{};
        first += replicas[process];
      }
      f(part);
    }
  }
  template <class T>
  void broadcast_locally(T* p, std::span<const Slice> ranges) {
    for (const Slice& range : ranges) broadcast_locally(p + range.first, range.count);
  }
  /// The processes whose replicas are `from`.
  Slice processes_of(Slice from) const {
    Slice result{};
    for (std::size_t r = 0, process = 0; process < group_->replicas_.size(); ++process) {
      const std::size_t count = group_->replicas_[process];
      const std::size_t first = std::max(r, from.first);
      const std::size_t end = std::min(r + count, from.first + from.count);
      r += count;
      if (first >= end) continue;
      if (end - first < count)
        throw UsageError(
            "ranges: {} members from {} on divide process {}; the replicas of a process are "
            "together",
            from.count, from.first, process);
      if (result.count++ == 0) result.first = process;
    }
    return result;
  }

  /// Runs f(). If it throws, aborts both levels, because other members may already wait in the
  /// other half of the operation.
  template <class F>
  void abort_on_error(const F& f) {
    try {
      f();
    } catch (...) {
      group_->abort();
      throw;
    }
  }

  /// Broadcasts the leader's values to the other members of this process.
  template <class T>
  void broadcast_locally(T* p, std::size_t n) {
    if (local_.size() > 1) local_.broadcast(p, n, 0);
  }

  /// Gathers over the processes. Each sends as many bytes as the process with the most replicas,
  /// since an all-gather needs equal sizes; the padding is dropped when the result is copied out.
  void gather(std::byte* out, std::size_t bytes) {
    const std::vector<std::size_t>& replicas = group_->replicas_;
    const std::size_t most = *std::max_element(replicas.begin(), replicas.end()) * bytes;
    std::vector<std::byte>&own = group_->gathered_own_, &all = group_->gathered_;
    own.resize(most);
    all.resize(most * replicas.size());
    if (bytes > 0) std::memcpy(own.data(), out + group_->first_ * bytes, local_.size() * bytes);
    group_->across_->all_gather(own.data(), most, all.data());
    for (std::size_t process = 0; process < replicas.size() && bytes > 0; ++process) {
      std::memcpy(out, all.data() + process * most, replicas[process] * bytes);
      out += replicas[process] * bytes;
    }
  }

  HierarchicalGroup* group_;
  ThreadGroup::Member local_;
};

namespace detail {
using HierarchyOfThreads = HierarchicalGroup<ThreadGroup::Member>::Member;
}
static_assert(AllReduces<detail::HierarchyOfThreads, float> &&
              AllReducesWithSums<detail::HierarchyOfThreads, float> &&
              Broadcasts<detail::HierarchyOfThreads, float> &&
              AllGathers<detail::HierarchyOfThreads, float> &&
              Barriers<detail::HierarchyOfThreads> && SharesSecrets<detail::HierarchyOfThreads>);

}  // namespace lockstep
