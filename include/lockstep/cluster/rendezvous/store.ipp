#pragma once

#include "lockstep/cluster/rendezvous/store.hpp"

#include <algorithm>

#include "lockstep/cluster/rendezvous/signature.hpp"
#include "lockstep/cluster/shown.hpp"
#include "lockstep/core/fmt_core.hpp"

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
      return meet(rank, std::move(request), now);
  }
}

void Store::expire(Clock::time_point now) {
  for (auto i = waiting_.begin(); i != waiting_.end();) {
    if (i->deadline > now) {
      ++i;
      continue;
    }
    late(i->rank, i->id, fmt::format("get: nobody has set {} in time", shown(i->name)));
    i = waiting_.erase(i);
  }
  for (auto m = meetings_.begin(); m != meetings_.end();) {
    Meeting& meeting = m->second;
    const auto due = [now](const Guest& guest) { return guest.deadline <= now; };
    if (std::any_of(meeting.guests.begin(), meeting.guests.end(), due)) {
      const std::string sentence =
          fmt::format("{}: not all ranks came in time; missing: {}", m->first, absent(meeting));
      for (const Guest& guest : meeting.guests) {
        if (!due(guest)) continue;
        meeting.came.erase(guest.rank);
        late(guest.rank, guest.id, sentence);
      }
      meeting.guests.remove_if(due);
    }
    m = meeting.guests.empty() && !meeting.fault ? meetings_.erase(m) : std::next(m);
  }
}

std::optional<Clock::time_point> Store::next_deadline() const {
  std::optional<Clock::time_point> first;
  const auto consider = [&first](Clock::time_point t) { first = first ? std::min(*first, t) : t; };
  for (const Wait& wait : waiting_) consider(wait.deadline);
  for (const auto& [name, meeting] : meetings_)
    for (const Guest& guest : meeting.guests) consider(guest.deadline);
  return first;
}

bool Store::awaited(std::size_t rank) const {
  return std::any_of(meetings_.begin(), meetings_.end(), [rank](const auto& entry) {
    const Meeting& meeting = entry.second;
    return !meeting.guests.empty() && !meeting.came.contains(rank);
  });
}

void Store::done(std::size_t rank, std::uint64_t id, std::string value, std::uint64_t n) {
  answer_(rank, {id, Reply::Status::done, std::move(value), n});
}

void Store::late(std::size_t rank, std::uint64_t id, std::string sentence) {
  answer_(rank, {id, Reply::Status::late, std::move(sentence), 0});
}

void Store::wrong(std::size_t rank, std::uint64_t id, std::string sentence) {
  answer_(rank, {id, Reply::Status::wrong, std::move(sentence), 0});
}

bool Store::keep(const std::string& name, std::string value) {
  const auto old = values_.find(name);
  const std::size_t before = old == values_.end() ? 0 : name.size() + old->second.size();
  const std::size_t after = bytes_ - before + name.size() + value.size();
  if (after > most_bytes) return false;
  bytes_ = after;
  for (auto i = waiting_.begin(); i != waiting_.end();) {
    if (i->name != name) {
      ++i;
      continue;
    }
    done(i->rank, i->id, value);
    i = waiting_.erase(i);
  }
  values_[name] = std::move(value);
  return true;
}

void Store::set(std::size_t rank, Request& request) {
  if (!keep(request.name, std::move(request.value)))
    return wrong(rank, request.id,
                 fmt::format("set {}: the store is full; it keeps {} bytes", shown(request.name),
                             most_bytes));
  done(rank, request.id);
}

void Store::get(std::size_t rank, const Request& request, Clock::time_point now) {
  const auto found = values_.find(request.name);
  if (found != values_.end()) return done(rank, request.id, found->second);
  waiting_.push_back({rank, request.id, request.name, now + request.deadline});
}

void Store::add(std::size_t rank, const Request& request) {
  const auto found = values_.find(request.name);
  std::uint64_t sum = request.number;
  if (found != values_.end()) {
    const auto number = whole_number<std::uint64_t>(found->second);
    if (!number)
      return wrong(rank, request.id,
                   fmt::format("add {}: its value {} is no number", shown(request.name),
                               shown(found->second)));
    sum += *number;
  }
  if (!keep(request.name, std::to_string(sum)))
    return wrong(rank, request.id, fmt::format("add {}: the store is full", shown(request.name)));
  done(rank, request.id, {}, sum);
}

void Store::meet(std::size_t rank, Request request, Clock::time_point now) {
  const bool agree = request.operation == Operation::agree;
  const std::string key = fmt::format("{}{}", agree ? "agree " : "barrier ", shown(request.name));
  Meeting& meeting = meetings_[key];
  const auto waits = [rank](const Guest& guest) { return guest.rank == rank; };
  if (std::any_of(meeting.guests.begin(), meeting.guests.end(), waits))
    return wrong(
        rank, request.id,
        fmt::format("{}: {} came twice; wait for the first call to end", key, name_(rank)));
  const bool first = meeting.came.empty();
  meeting.came.insert(rank);
  meeting.guests.push_back({rank, request.id, now + request.deadline});
  if (first) {
    meeting.first = rank;
    meeting.fields = std::move(request.fields);
  } else if (!meeting.fault) {
    meeting.fault = compare(request.name, meeting, rank, request.fields);
  }
  const bool complete = meeting.came.size() == world_size_;
  if (!complete && !meeting.fault) return;
  // The answers may ask for more, so the meeting is closed before they go out.
  const std::list<Guest> guests = std::exchange(meeting.guests, {});
  const auto fault = meeting.fault;
  if (complete) meetings_.erase(key);
  for (const Guest& guest : guests) {
    if (fault)
      wrong(guest.rank, guest.id, *fault);
    else
      done(guest.rank, guest.id);
  }
}

std::optional<std::string> Store::compare(const std::string& part, const Meeting& meeting,
                                          std::size_t rank,
                                          const std::vector<SignatureField>& fields) const {
  if (rank < meeting.first)
    return difference(part, name_(rank), fields, name_(meeting.first), meeting.fields);
  return difference(part, name_(meeting.first), meeting.fields, name_(rank), fields);
}

std::string Store::absent(const Meeting& meeting) const {
  constexpr std::size_t most_names = 8;
  std::string names;
  std::size_t n = 0;
  for (std::size_t r = 0; r < world_size_; ++r) {
    if (meeting.came.contains(r)) continue;
    if (++n <= most_names) names += (n > 1 ? ", " : "") + name_(r);
  }
  if (n > most_names) names += fmt::format(" and {} more", n - most_names);
  return names;
}

}  // namespace lockstep::detail
