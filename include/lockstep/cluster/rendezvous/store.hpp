/// \file
/// The store of a job: values by name, counters, meetings of all ranks. It lives at the chief and
/// knows neither sockets nor clocks. Invariants: each request is answered once, at the latest at
/// its deadline; a meeting in which ranks differ ends alike for all that come to it; the bytes kept
/// are limited.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/cluster/rendezvous/clock.hpp"
#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

class Store {
 public:
  using Answer = std::function<void(std::size_t rank, Reply)>;
  using Name = std::function<std::string(std::size_t rank)>;

  static constexpr std::size_t max_bytes = 64 << 20;

  /// `answer` gets each reply; `name` is "rank 1 (10.0.0.2:12345)".
  Store(std::size_t world_size, Answer answer, Name name)
      : world_size_(world_size), answer_(std::move(answer)), name_(std::move(name)) {}

  LOCKSTEP_COLD_DECL void handle(std::size_t rank, Request request, Clock::time_point now);

  /// Answers the requests whose deadline has passed.
  LOCKSTEP_COLD_DECL void expire(Clock::time_point now);

  /// When `expire` has something to do.
  LOCKSTEP_COLD_DECL std::optional<Clock::time_point> next_deadline() const;

  /// True if somebody waits for a meeting to which `rank` has not come.
  LOCKSTEP_COLD_DECL bool awaited(std::size_t rank) const;

 private:
  struct PendingGet {
    std::size_t rank;
    std::uint64_t id;
    std::string name;
    Clock::time_point deadline;
  };
  struct Waiter {
    std::size_t rank;
    std::uint64_t id;
    Clock::time_point deadline;
  };
  struct Barrier {
    std::list<Waiter> waiters{};  ///< those who wait
    std::set<std::size_t> arrived{};
    std::size_t first = 0;  ///< whose fields the others are compared with
    std::vector<SignatureField> fields{};
    std::optional<std::string> fault{};
  };

  LOCKSTEP_COLD_DECL void reply_ok(std::size_t rank, std::uint64_t id, std::string value = {},
                                   std::uint64_t n = 0);
  LOCKSTEP_COLD_DECL void reply_timeout(std::size_t rank, std::uint64_t id, std::string sentence);
  LOCKSTEP_COLD_DECL void reply_error(std::size_t rank, std::uint64_t id, std::string sentence);

  /// Keeps `value` under `name`. False: no room.
  LOCKSTEP_COLD_DECL bool put(const std::string& name, std::string value);
  LOCKSTEP_COLD_DECL void set(std::size_t rank, Request& request);
  LOCKSTEP_COLD_DECL void get(std::size_t rank, const Request& request, Clock::time_point now);
  LOCKSTEP_COLD_DECL void add(std::size_t rank, const Request& request);
  LOCKSTEP_COLD_DECL void enter_barrier(std::size_t rank, Request request, Clock::time_point now);

  /// The lower rank is named first.
  LOCKSTEP_COLD_DECL std::optional<std::string> compare(
      const std::string& part, const Barrier& barrier, std::size_t rank,
      const std::vector<SignatureField>& fields) const;
  LOCKSTEP_COLD_DECL std::string missing_ranks(const Barrier& barrier) const;

  std::size_t world_size_;
  Answer answer_;
  Name name_;
  std::map<std::string, std::string> values_;
  std::size_t bytes_ = 0;
  std::list<PendingGet> pending_gets_;
  std::map<std::string, Barrier> barriers_;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/store.ipp"
#endif
