#pragma once

#include "lockstep/collectives/thread_group.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "lockstep/collectives/spin.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep {

ThreadGroup::ThreadGroup(const Options& options) : options_(options) {
  if (options.size < 1 || options.size > max_size)
    throw UsageError("thread group: size is {}; it must be between 1 and {}", options.size,
                     max_size);
  members_ = std::make_unique<MemberState[]>(options.size);
  // A deadline, now + timeout, must not overflow.
  options_.timeout = std::min<std::chrono::nanoseconds>(options.timeout, std::chrono::hours(8760));
}

void ThreadGroup::abort() {
  {
    const std::scoped_lock lock(mutex_);
    aborted_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

void ThreadGroup::reset() {
  const std::scoped_lock lock(mutex_);
  for (std::size_t r = 0; r < size(); ++r) members_[r].arrivals.store(0, std::memory_order_relaxed);
  arrived_.store(0, std::memory_order_relaxed);
  aborted_.store(false, std::memory_order_release);
}

bool ThreadGroup::Call::agrees(const Call& o) const {
  return operation == o.operation && n == o.n && m == o.m && root == o.root && *kind == *o.kind &&
         element == o.element;
}

const char* ThreadGroup::name_of(Operation operation) {
  constexpr std::array names{"all_reduce", "broadcast", "all_gather", "barrier"};
  return names[static_cast<std::size_t>(operation)];
}

void ThreadGroup::arrive_and_wait(std::size_t rank, bool may_fail, int spins) {
  const std::uint64_t phase = phase_.load(std::memory_order_acquire);
  members_[rank].arrivals.fetch_add(1, std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size()) {
    arrived_.store(0, std::memory_order_relaxed);
    {
      const std::scoped_lock lock(mutex_);
      if (may_fail && aborted_.load(std::memory_order_relaxed))
        throw_aborted(rank, members_[rank].call.operation);
      phase_.store(phase + 1, std::memory_order_release);
    }
    changed_.notify_all();
    return;
  }
  const auto over = [&] { return phase_.load(std::memory_order_acquire) != phase; };
  if (detail::spin_until(spins, over)) return;
  std::unique_lock lock(mutex_);
  if (!may_fail) {
    changed_.wait(lock, over);
    return;
  }
  wait(lock, [&] { return over() || aborted_.load(std::memory_order_relaxed); });
  if (over()) return;
  if (aborted_.load(std::memory_order_relaxed)) throw_aborted(rank, members_[rank].call.operation);
  aborted_.store(true, std::memory_order_release);
  lock.unlock();
  changed_.notify_all();
  throw_timeout(rank);
}

template <class Done>
void ThreadGroup::wait(std::unique_lock<std::mutex>& lock, const Done& done) {
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

void ThreadGroup::begin(std::size_t rank, const Call& call, int spins) {
  // Do not overwrite the call of an aborted group: peers may still compare it.
  if (aborted_.load(std::memory_order_acquire)) throw_aborted(rank, call.operation);
  members_[rank].call = call;
  arrive_and_wait(rank, true, spins);
  for (std::size_t r = 0; r < size(); ++r)
    if (!members_[r].call.agrees(call)) throw_mismatch(r, rank);
}

void ThreadGroup::throw_aborted(std::size_t rank, Operation operation) {
  throw CollectiveAborted("{}: replica {} stopped because another replica failed",
                          name_of(operation), rank);
}

void ThreadGroup::throw_timeout(std::size_t rank) {
  const std::uint64_t mine = members_[rank].arrivals.load(std::memory_order_relaxed);
  std::string missing;
  for (std::size_t r = 0; r < size(); ++r)
    if (members_[r].arrivals.load(std::memory_order_relaxed) < mine)
      missing += format_text("{}{}", missing.empty() ? "" : ", ", r);
  throw CollectiveTimeout(
      "{}: replica {} waited {} ms for replica {}, which did not arrive; it hangs, or it needs a "
      "longer timeout",
      name_of(members_[rank].call.operation), rank,
      std::chrono::duration_cast<std::chrono::milliseconds>(options_.timeout).count(), missing);
}

void ThreadGroup::throw_mismatch(std::size_t other, std::size_t rank) {
  const Call a = members_[other].call, b = members_[rank].call;
  abort();
  throw UsageError(
      "thread group: replica {} calls {} of {} elements of {}{}, replica {} calls {} of {} "
      "elements of {}{}; all replicas must make the same calls in the same order",
      other, name_of(a.operation), a.n, a.kind, 8 * a.element, rank, name_of(b.operation), b.n,
      b.kind, 8 * b.element);
}

ThreadGroup::Member::Member(ThreadGroup& group, std::size_t rank)
    : group_(&group), rank_(rank), spins_(group.options_.spins) {
  if (rank >= group.size())
    throw UsageError("thread group: rank is {}; it must be below the group's size, {}", rank,
                     group.size());
}

ThreadGroup::Member ThreadGroup::Member::in_background() const {
  Member member = *this;
  member.spins_ = 0;
  return member;
}

void ThreadGroup::Member::reduce(const Call& mine, detail::SumMembers sum) {
  group_->begin(rank_, mine, spins_);
  const std::size_t line = 64 / mine.element;  // no two members write to the same cache line
  const Slice lines = slice_of((mine.n + line - 1) / line, size(), rank_);
  const std::size_t first = lines.first * line, end = std::min(mine.n, first + lines.count * line);
  std::array<void*, max_size> part;
  if (first < end) {
    for (std::size_t r = 0; r < size(); ++r) part[r] = const_cast<void*>(call(r).p);
    sum(part.data(), size(), first, end - first, group_->options_.order);
  }
  if (rank_ == 0 && mine.m > 0) {
    for (std::size_t r = 0; r < size(); ++r) part[r] = call(r).sums;
    detail::sum_members_from<double>(part.data(), size(), 0, mine.m, group_->options_.order);
  }
  group_->end(rank_);
}

void ThreadGroup::Member::send(const Call& mine, void* to) {
  if (mine.root >= size()) {
    abort();
    throw UsageError("broadcast: root is {}; it must be below the group's size, {}", mine.root,
                     size());
  }
  group_->begin(rank_, mine, spins_);
  if (rank_ != mine.root && mine.n > 0) std::memcpy(to, call(mine.root).p, mine.n * mine.element);
  group_->end(rank_);
}

void ThreadGroup::Member::gather(const Call& mine, void* to) {
  group_->begin(rank_, mine, spins_);
  const std::size_t bytes = mine.n * mine.element;
  for (std::size_t r = 0; r < size() && bytes > 0; ++r)
    std::memcpy(static_cast<std::byte*>(to) + r * bytes, call(r).p, bytes);
  group_->end(rank_);
}

void ThreadGroup::Member::barrier() {
  group_->begin(rank_, {Operation::barrier, 0, 0, 0, "", 0, nullptr, nullptr}, spins_);
  group_->end(rank_);
}

#ifdef LOCKSTEP_SEPARATE_COMPILATION
namespace detail {
template void sum_members_from<float>(void* const*, std::size_t, std::size_t, std::size_t,
                                      SumOrder);
template void sum_members_from<double>(void* const*, std::size_t, std::size_t, std::size_t,
                                       SumOrder);
}  // namespace detail
#endif

}  // namespace lockstep
