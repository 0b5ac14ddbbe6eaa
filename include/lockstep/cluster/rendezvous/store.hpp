/// \file
/// The store of a job: values by name, counters, meetings of all ranks. It lives at the chief and
/// knows neither sockets nor clocks. Invariants: each request is answered once, at the latest at
/// its deadline; a meeting in which ranks differ ends alike for all that come to it; the bytes kept
/// are limited.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/cluster/rendezvous/clock.hpp"
#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/cluster/rendezvous/signature.hpp"
#include "lockstep/cluster/shown.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::detail {

class Store {
 public:
  using Answer = std::function<void(std::size_t rank, Reply)>;
  using Name = std::function<std::string(std::size_t rank)>;

  static constexpr std::size_t most_bytes = 64 << 20;

  /// `answer` gets each reply; `name` is "rank 1 (10.0.0.2:12345)".
  Store(std::size_t world_size, Answer answer, Name name)
      : world_size_(world_size), answer_(std::move(answer)), name_(std::move(name)) {}

  void handle(std::size_t rank, Request request, Clock::time_point now) {
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

  /// Answers the requests whose deadline has passed.
  void expire(Clock::time_point now) {
    for (auto i = waiting_.begin(); i != waiting_.end();) {
      if (i->deadline > now) {
        ++i;
        continue;
      }
      late(i->rank, i->id, text({"get: nobody has set ", shown(i->name), " in time"}));
      i = waiting_.erase(i);
    }
    for (auto m = meetings_.begin(); m != meetings_.end();) {
      Meeting& meeting = m->second;
      const auto due = [now](const Guest& guest) { return guest.deadline <= now; };
      if (std::any_of(meeting.guests.begin(), meeting.guests.end(), due)) {
        const std::string sentence =
            text({m->first, ": not all ranks came in time; missing: ", absent(meeting)});
        for (const Guest& guest : meeting.guests) {
          if (!due(guest)) continue;
          meeting.came[guest.rank] = false;
          late(guest.rank, guest.id, sentence);
        }
        meeting.guests.remove_if(due);
      }
      m = meeting.guests.empty() && !meeting.fault ? meetings_.erase(m) : std::next(m);
    }
  }

  /// When `expire` has something to do.
  std::optional<Clock::time_point> next_deadline() const {
    std::optional<Clock::time_point> first;
    const auto consider = [&first](Clock::time_point t) {
      first = first ? std::min(*first, t) : t;
    };
    for (const Wait& wait : waiting_) consider(wait.deadline);
    for (const auto& [name, meeting] : meetings_)
      for (const Guest& guest : meeting.guests) consider(guest.deadline);
    return first;
  }

  /// True if somebody waits for a meeting to which `rank` has not come.
  bool awaited(std::size_t rank) const {
    return std::any_of(meetings_.begin(), meetings_.end(), [rank](const auto& entry) {
      const Meeting& meeting = entry.second;
      return !meeting.guests.empty() && !meeting.came[rank];
    });
  }

 private:
  struct Wait {
    std::size_t rank;
    std::uint64_t id;
    std::string name;
    Clock::time_point deadline;
  };
  struct Guest {
    std::size_t rank;
    std::uint64_t id;
    Clock::time_point deadline;
  };
  struct Meeting {
    std::list<Guest> guests{};  ///< those who wait
    std::vector<bool> came{};
    std::size_t first = 0;  ///< whose fields the others are compared with
    std::vector<SignatureField> fields{};
    std::optional<std::string> fault{};
  };

  void done(std::size_t rank, std::uint64_t id, std::string value = {}, std::uint64_t n = 0) {
    answer_(rank, {id, Reply::Status::done, std::move(value), n});
  }
  void late(std::size_t rank, std::uint64_t id, std::string sentence) {
    answer_(rank, {id, Reply::Status::late, std::move(sentence), 0});
  }
  void wrong(std::size_t rank, std::uint64_t id, std::string sentence) {
    answer_(rank, {id, Reply::Status::wrong, std::move(sentence), 0});
  }

  /// Keeps `value` under `name`. False: no room.
  bool keep(const std::string& name, std::string value) {
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

  void set(std::size_t rank, Request& request) {
    if (!keep(request.name, std::move(request.value)))
      return wrong(rank, request.id,
                   text({"set ", shown(request.name), ": the store is full; it keeps ", most_bytes,
                         " bytes"}));
    done(rank, request.id);
  }

  void get(std::size_t rank, const Request& request, Clock::time_point now) {
    const auto found = values_.find(request.name);
    if (found != values_.end()) return done(rank, request.id, found->second);
    waiting_.push_back({rank, request.id, request.name, now + request.deadline});
  }

  void add(std::size_t rank, const Request& request) {
    const auto found = values_.find(request.name);
    std::uint64_t sum = request.number;
    if (found != values_.end()) {
      const auto number = whole_number<std::uint64_t>(found->second);
      if (!number)
        return wrong(rank, request.id,
                     text({"add ", shown(request.name), ": its value ", shown(found->second),
                           " is no number"}));
      sum += *number;
    }
    if (!keep(request.name, std::to_string(sum)))
      return wrong(rank, request.id, text({"add ", shown(request.name), ": the store is full"}));
    done(rank, request.id, {}, sum);
  }

  void meet(std::size_t rank, Request request, Clock::time_point now) {
    const bool agree = request.operation == Operation::agree;
    const std::string key = text({agree ? "agree " : "barrier ", shown(request.name)});
    Meeting& meeting = meetings_[key];
    if (meeting.came.empty()) meeting.came.resize(world_size_);
    const auto waits = [rank](const Guest& guest) { return guest.rank == rank; };
    if (std::any_of(meeting.guests.begin(), meeting.guests.end(), waits))
      return wrong(rank, request.id,
                   text({key, ": ", name_(rank), " came twice; wait for the first call to end"}));
    const bool first =
        std::find(meeting.came.begin(), meeting.came.end(), true) == meeting.came.end();
    meeting.came[rank] = true;
    meeting.guests.push_back({rank, request.id, now + request.deadline});
    if (first) {
      meeting.first = rank;
      meeting.fields = std::move(request.fields);
    } else if (!meeting.fault) {
      meeting.fault = compare(request.name, meeting, rank, request.fields);
    }
    const bool complete =
        std::find(meeting.came.begin(), meeting.came.end(), false) == meeting.came.end();
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

  /// The lower rank is named first.
  std::optional<std::string> compare(const std::string& part, const Meeting& meeting,
                                     std::size_t rank,
                                     const std::vector<SignatureField>& fields) const {
    if (rank < meeting.first)
      return difference(part, name_(rank), fields, name_(meeting.first), meeting.fields);
    return difference(part, name_(meeting.first), meeting.fields, name_(rank), fields);
  }

  std::string absent(const Meeting& meeting) const {
    constexpr std::size_t most_names = 8;
    std::string names;
    std::size_t n = 0;
    for (std::size_t r = 0; r < world_size_; ++r) {
      if (meeting.came[r]) continue;
      if (++n <= most_names) names += (n > 1 ? ", " : "") + name_(r);
    }
    if (n > most_names) names += text({" and ", n - most_names, " more"});
    return names;
  }

  std::size_t world_size_;
  Answer answer_;
  Name name_;
  std::map<std::string, std::string> values_;
  std::size_t bytes_ = 0;
  std::list<Wait> waiting_;
  std::map<std::string, Meeting> meetings_;
};

}  // namespace lockstep::detail
