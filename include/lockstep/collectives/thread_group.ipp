#pragma once

#include "lockstep/collectives/thread_group.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "lockstep/collectives/algorithms/shutdown.hpp"
#include "lockstep/collectives/algorithms/spin.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/process/suspended_time.hpp"
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

void ThreadGroup::arrive_and_wait(std::size_t rank, bool may_fail, int spins) {
  const std::uint64_t phase = phase_.load(std::memory_order_acquire);
  members_[rank].arrivals.fetch_add(1, std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size()) {
    arrived_.store(0, std::memory_order_relaxed);
    {
      const std::scoped_lock lock(mutex_);
      if (may_fail && aborted_.load(std::memory_order_relaxed))
        throw_aborted(rank, members_[rank].call.call);
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
  detail::wait_while_running(options_.timeout, [&](auto time) {
    return changed_.wait_until(lock, time,
                               [&] { return over() || aborted_.load(std::memory_order_relaxed); });
  });
  if (over()) return;
  if (aborted_.load(std::memory_order_relaxed)) throw_aborted(rank, members_[rank].call.call);
  aborted_.store(true, std::memory_order_release);
  lock.unlock();
  changed_.notify_all();
  throw_timeout(rank);
}

void ThreadGroup::begin(std::size_t rank, const Call& call, int spins) {
  // Do not overwrite the call of an aborted group: peers may still compare it.
  if (aborted_.load(std::memory_order_acquire)) throw_aborted(rank, call.call);
  members_[rank].call = call;
  arrive_and_wait(rank, true, spins);
  for (std::size_t r = 0; r < size(); ++r)
    if (members_[r].call.call != call.call) throw_mismatch(r, rank);
}

void ThreadGroup::throw_aborted(std::size_t rank, const detail::CollectiveCall& call) {
  throw CollectiveAborted("{}: replica {} stopped because another replica failed", call.name(),
                          rank);
}

void ThreadGroup::throw_timeout(std::size_t rank) {
  const std::uint64_t mine = members_[rank].arrivals.load(std::memory_order_relaxed);
  std::vector<std::size_t> missing;
  for (std::size_t r = 0; r < size(); ++r)
    if (members_[r].arrivals.load(std::memory_order_relaxed) < mine) missing.push_back(r);
  detail::throw_late(std::nullopt, members_[rank].call.call.name(), rank, options_.timeout, missing,
                     false);  // the rank of a thread is none of a process
}

void ThreadGroup::throw_mismatch(std::size_t other, std::size_t rank) {
  const detail::CollectiveCall theirs = members_[other].call.call, ours = members_[rank].call.call;
  abort();
  detail::throw_mismatch(other, theirs, rank, ours);
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

void ThreadGroup::Member::reduce(const detail::CollectiveCall& call, std::byte* p,
                                 const detail::Additions& add, double* sums) {
  group_->begin(rank_, {call, p, sums}, spins_);
  const std::size_t n = call.n, m = call.m;
  const std::size_t line = 64 / call.element;  // no two members write to the same cache line
  const Slice lines = slice_of((n + line - 1) / line, size(), rank_);
  const std::size_t first = lines.first * line, end = std::min(n, first + lines.count * line);
  std::array<void*, max_size> part;
  if (first < end) {
    for (std::size_t r = 0; r < size(); ++r) part[r] = const_cast<std::byte*>(published(r).p);
    add.members(part.data(), size(), first, end - first, group_->options_.order);
  }
  if (rank_ == 0 && m > 0) {
    for (std::size_t r = 0; r < size(); ++r) part[r] = published(r).sums;
    detail::sum_members_from<double>(part.data(), size(), 0, m, group_->options_.order);
  }
  group_->end(rank_);
}

void ThreadGroup::Member::send(const detail::CollectiveCall& call, std::byte* p) {
  group_->begin(rank_, {call, p}, spins_);
  if (rank_ != call.root && call.bytes() > 0) std::memcpy(p, published(call.root).p, call.bytes());
  group_->end(rank_);
}

void ThreadGroup::Member::gather(const detail::CollectiveCall& call, const std::byte* p,
                                 std::byte* out) {
  group_->begin(rank_, {call, p}, spins_);
  const std::size_t bytes = call.bytes();
  for (std::size_t r = 0; r < size() && bytes > 0; ++r)
    if (published(r).p != out + r * bytes) std::memcpy(out + r * bytes, published(r).p, bytes);
  group_->end(rank_);
}

// No member reads what another one writes, since each writes its own range only.
void ThreadGroup::Member::scatter(const detail::CollectiveCall& call, std::byte* p,
                                  const detail::Additions& add, std::span<const Slice> ranges,
                                  Slice from) {
  group_->begin(rank_, {call, p}, spins_);
  const std::size_t at = ranges[rank_].first * call.element;
  std::array<const std::byte*, max_size> part;
  for (std::size_t i = 0; i < from.count; ++i) part[i] = published(from.first + i).p + at;
  add.parts(p + at, part.data(), from.count, ranges[rank_].count * call.element,
            group_->options_.order);
  group_->end(rank_);
}

void ThreadGroup::Member::gather(const detail::CollectiveCall& call, std::byte* p,
                                 std::span<const Slice> ranges) {
  group_->begin(rank_, {call, p}, spins_);
  for (std::size_t r = 0; r < size(); ++r) {
    const std::size_t at = ranges[r].first * call.element, bytes = ranges[r].count * call.element;
    if (r != rank_ && bytes > 0) std::memcpy(p + at, published(r).p + at, bytes);
  }
  group_->end(rank_);
}

void ThreadGroup::Member::wait(const detail::CollectiveCall& call) {
  group_->begin(rank_, {call}, spins_);
  group_->end(rank_);
}

#ifdef LOCKSTEP_SEPARATE_COMPILATION
namespace detail {
template void sum_members_from<float>(void* const*, std::size_t, std::size_t, std::size_t,
                                      SumOrder);
template void sum_members_from<double>(void* const*, std::size_t, std::size_t, std::size_t,
                                       SumOrder);
template void sum_members_from<bfloat16>(void* const*, std::size_t, std::size_t, std::size_t,
                                         SumOrder);
}  // namespace detail
#endif

}  // namespace lockstep
