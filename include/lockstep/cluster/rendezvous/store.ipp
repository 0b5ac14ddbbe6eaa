#pragma once

#include "lockstep/cluster/rendezvous/store.hpp"

#include <algorithm>

#include "lockstep/cluster/rendezvous/signature.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/quote.hpp"

namespace lockstep::detail {

void Store::handle(std::size_t rank, Request request, Clock::time_point now) {
  switch (request.operation) {
    case Operation::set:
      return set(rank, request);
    case Operation::get:
      return get(rank, request, now);
    case Operation::add:
      return add(rank, request);
    case Operation::barrier:
    case Operation::agree:
    case Operation::gather:
      return enter_barrier(rank, std::move(request), now);
  }
}

void Store::expire(Clock::time_point now) {
  for (auto i = pending_gets_.begin(); i != pending_gets_.end();) {
    if (i->deadline > now) {
      ++i;
      continue;
    }
    reply_timeout(i->rank, i->id,
                  format_text("get {}: no rank set it before the deadline", quote(i->name)));
    i = pending_gets_.erase(i);
  }
  for (auto m = barriers_.begin(); m != barriers_.end();) {
    Barrier& barrier = m->second;
    const auto due = [now](const Waiter& waiter) { return waiter.deadline <= now; };
    if (std::any_of(barrier.waiters.begin(), barrier.waiters.end(), due)) {
      const std::string sentence =
          format_text("{}: not all ranks arrived before the deadline; missing: {}", m->first,
                      missing_ranks(barrier));
      std::size_t missing = 0;
      while (!is_missing(barrier, missing)) ++missing;
      for (const Waiter& waiter : barrier.waiters) {
        if (!due(waiter)) continue;
        // A rank that timed out may enter again.
        barrier.arrived.erase(waiter.rank);
        barrier.values.erase(waiter.rank);
        barrier.timed_out.insert(waiter.rank);
        reply_timeout(waiter.rank, waiter.id, sentence, missing + 1);
      }
      barrier.waiters.remove_if(due);
    }
    m = barrier.waiters.empty() && !barrier.fault ? barriers_.erase(m) : std::next(m);
  }
}

std::optional<Clock::time_point> Store::next_deadline() const {
  std::optional<Clock::time_point> first;
  const auto consider = [&first](Clock::time_point t) { first = first ? std::min(*first, t) : t; };
  for (const PendingGet& wait : pending_gets_) consider(wait.deadline);
  for (const auto& [name, barrier] : barriers_)
    for (const Waiter& waiter : barrier.waiters) consider(waiter.deadline);
  return first;
}

bool Store::awaited(std::size_t rank) const {
  return std::any_of(barriers_.begin(), barriers_.end(), [rank](const auto& entry) {
    const Barrier& barrier = entry.second;
    return !barrier.waiters.empty() && !barrier.arrived.contains(rank);
  });
}

void Store::reply_ok(std::size_t rank, std::uint64_t id, std::string value, std::uint64_t n) {
  answer_(rank, {id, Reply::Code::ok, std::move(value), n});
}

void Store::reply_timeout(std::size_t rank, std::uint64_t id, std::string sentence,
                          std::uint64_t missing) {
  answer_(rank, {id, Reply::Code::timeout, std::move(sentence), missing});
}

void Store::reply_error(std::size_t rank, std::uint64_t id, std::string sentence) {
  answer_(rank, {id, Reply::Code::error, std::move(sentence), 0});
}

bool Store::put(const std::string& name, std::string value) {
  const auto old = values_.find(name);
  const std::size_t before = old == values_.end() ? 0 : name.size() + old->second.size();
  const std::size_t after = bytes_ - before + name.size() + value.size();
  if (after > max_bytes) return false;
  bytes_ = after;
  for (auto i = pending_gets_.begin(); i != pending_gets_.end();) {
    if (i->name != name) {
      ++i;
      continue;
    }
    reply_ok(i->rank, i->id, value);
    i = pending_gets_.erase(i);
  }
  values_[name] = std::move(value);
  return true;
}

void Store::set(std::size_t rank, Request& request) {
  if (!put(request.name, std::move(request.value)))
    return reply_error(rank, request.id,
                       format_text("set {}: the store is full; it holds at most {} bytes",
                                   quote(request.name), max_bytes));
  reply_ok(rank, request.id);
}

void Store::get(std::size_t rank, const Request& request, Clock::time_point now) {
  const auto found = values_.find(request.name);
  if (found != values_.end()) return reply_ok(rank, request.id, found->second);
  pending_gets_.push_back({rank, request.id, request.name, now + request.deadline});
}

void Store::add(std::size_t rank, const Request& request) {
  const auto found = values_.find(request.name);
  std::uint64_t sum = request.number;
  if (found != values_.end()) {
    const auto number = whole_number<std::uint64_t>(found->second);
    if (!number)
      return reply_error(rank, request.id,
                         format_text("add {}: its value {} is not a number", quote(request.name),
                                     quote(found->second)));
    sum += *number;
  }
  if (!put(request.name, std::to_string(sum)))
    return reply_error(rank, request.id,
                       format_text("add {}: the store is full", quote(request.name)));
  reply_ok(rank, request.id, {}, sum);
}

void Store::enter_barrier(std::size_t rank, Request request, Clock::time_point now) {
  const char* const operation = request.operation == Operation::agree    ? "agree "
                                : request.operation == Operation::gather ? "gather "
                                                                         : "barrier ";
  const std::string key = operation + quote(request.name);
  Barrier& barrier = barriers_[key];
  const auto waits = [rank](const Waiter& waiter) { return waiter.rank == rank; };
  if (std::any_of(barrier.waiters.begin(), barrier.waiters.end(), waits))
    return reply_error(
        rank, request.id,
        format_text("{}: {} called it twice; wait for the first call to return", key, name_(rank)));
  const bool first = barrier.arrived.empty();
  barrier.arrived.insert(rank);
  barrier.timed_out.erase(rank);
  barrier.waiters.push_back({rank, request.id, now + request.deadline});
  if (!request.value.empty()) barrier.values[rank] = std::move(request.value);
  if (first) {
    barrier.first = rank;
    barrier.fields = std::move(request.fields);
  } else if (!barrier.fault) {
    barrier.fault = compare(request.name, barrier, rank, request.fields);
  }
  if (!barrier.fault && !fit(barrier))
    barrier.fault =
        format_text("{}: the values of all ranks have more than {} bytes", key, max_value_bytes);
  const bool complete = barrier.arrived.size() == world_size_;
  if (!complete && !barrier.fault) return;
  // Replying may enter the barrier again, so it is reset first.
  const std::list<Waiter> waiters = std::exchange(barrier.waiters, {});
  const auto fault = barrier.fault;
  std::string values;
  for (const auto& [from, value] : barrier.values) values += value;
  if (complete) barriers_.erase(key);
  for (const Waiter& waiter : waiters) {
    if (fault)
      reply_error(waiter.rank, waiter.id, *fault);
    else
      reply_ok(waiter.rank, waiter.id, values);
  }
}

bool Store::fit(const Barrier& barrier) {
  std::size_t bytes = 0;
  for (const auto& [rank, value] : barrier.values) bytes += value.size();
  return bytes <= max_value_bytes;
}

bool Store::is_missing(const Barrier& barrier, std::size_t rank) const {
  if (barrier.arrived.contains(rank)) return false;
  const bool all_have_arrived = barrier.arrived.size() + barrier.timed_out.size() == world_size_;
  return all_have_arrived || !barrier.timed_out.contains(rank);
}

std::optional<std::string> Store::compare(const std::string& part, const Barrier& barrier,
                                          std::size_t rank,
                                          const std::vector<SignatureField>& fields) const {
  if (rank < barrier.first)
    return difference(part, name_(rank), fields, name_(barrier.first), barrier.fields);
  return difference(part, name_(barrier.first), barrier.fields, name_(rank), fields);
}

std::string Store::missing_ranks(const Barrier& barrier) const {
  constexpr std::size_t max_names = 8;
  std::string names;
  std::size_t n = 0;
  for (std::size_t r = 0; r < world_size_; ++r) {
    if (!is_missing(barrier, r)) continue;
    if (++n <= max_names) names += (n > 1 ? ", " : "") + name_(r);
  }
  if (n > max_names) names += format_text(" and {} more", n - max_names);
  return names;
}

}  // namespace lockstep::detail
