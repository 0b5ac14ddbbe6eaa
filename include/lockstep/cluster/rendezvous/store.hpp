/// \file
/// The job's key-value store: values, counters, barriers. It lives on the chief and knows neither
/// sockets nor clocks. Invariants: each request gets exactly one reply, at its deadline at the
/// latest; a barrier whose ranks disagree fails for every rank that enters it; the total size is
/// bounded.
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

#include "lockstep/cluster/network/clock.hpp"
#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// Values by name, and barriers by operation and name.
///
///     set x      values_["x"]; replies to every pending get of x
///     get x      replies at once, or waits in pending_gets_ until a set or the deadline
///     barrier b  barriers_["barrier b"]: the last arrival completes it for all
///     agree b    the same, and each arrival's fields are compared with those of the first
///     gather b   the same, and each arrival brings a value; all get all values by rank
class Store {
 public:
  /// Delivers a reply to a rank.
  using Answer = std::function<void(std::size_t rank, Reply)>;
  /// A rank's name in messages: "rank 1 (10.0.0.2:12345)".
  using Name = std::function<std::string(std::size_t rank)>;

  /// Names and values together.
  static constexpr std::size_t max_bytes = 64 << 20;

  /// An empty store for `world_size` ranks.
  Store(std::size_t world_size, Answer answer, Name name)
      : world_size_(world_size), answer_(std::move(answer)), name_(std::move(name)) {}

  /// Handles a request of `rank`. Replies now, or later from `handle` or `expire`.
  LOCKSTEP_COLD_DECL void handle(std::size_t rank, Request request, Clock::time_point now);

  /// Replies to the requests whose deadline has passed.
  LOCKSTEP_COLD_DECL void expire(Clock::time_point now);

  /// When to call `expire` next; nullopt if no request waits.
  LOCKSTEP_COLD_DECL std::optional<Clock::time_point> next_deadline() const;

  /// True if some rank waits at a barrier that `rank` has not entered.
  LOCKSTEP_COLD_DECL bool awaited(std::size_t rank) const;

 private:
  /// A get whose name has no value yet.
  struct PendingGet {
    std::size_t rank;
    std::uint64_t id;
    std::string name;
    Clock::time_point deadline;
  };
  /// A rank that waits at a barrier.
  struct Waiter {
    std::size_t rank;
    std::uint64_t id;
    Clock::time_point deadline;
  };
  /// A barrier, agreement or gather that some ranks have entered.
  struct Barrier {
    std::list<Waiter> waiters{};  ///< ranks without a reply
    std::set<std::size_t> arrived{};
    std::set<std::size_t> timed_out{};  ///< have arrived, and no longer wait
    std::size_t first = 0;              ///< the first arrival, whose fields are the reference
    std::vector<SignatureField> fields{};
    std::map<std::size_t, std::string> values{};  ///< of a gather, by rank
    std::optional<std::string> fault{};
  };

  /// The three kinds of reply.
  LOCKSTEP_COLD_DECL void reply_ok(std::size_t rank, std::uint64_t id, std::string value = {},
                                   std::uint64_t n = 0);
  LOCKSTEP_COLD_DECL void reply_timeout(std::size_t rank, std::uint64_t id, std::string sentence,
                                        std::uint64_t missing = 0);
  LOCKSTEP_COLD_DECL void reply_error(std::size_t rank, std::uint64_t id, std::string sentence);

  /// Stores `value` and replies to the gets that wait for it. False if the store is full.
  LOCKSTEP_COLD_DECL bool put(const std::string& name, std::string value);
  /// Stores a value, or replies that the store is full.
  LOCKSTEP_COLD_DECL void set(std::size_t rank, Request& request);
  /// Replies with the value, or waits for it until the deadline.
  LOCKSTEP_COLD_DECL void get(std::size_t rank, const Request& request, Clock::time_point now);
  /// Counters are values in decimal, so `get` reads them too.
  LOCKSTEP_COLD_DECL void add(std::size_t rank, const Request& request);
  /// Adds a rank to a barrier; completes it if this was the last one or the fields differ.
  LOCKSTEP_COLD_DECL void enter_barrier(std::size_t rank, Request request, Clock::time_point now);

  /// The difference of two ranks' fields as a sentence, the lower rank first.
  LOCKSTEP_COLD_DECL std::optional<std::string> compare(
      const std::string& part, const Barrier& barrier, std::size_t rank,
      const std::vector<SignatureField>& fields) const;
  /// Whether the values of a gather fit into a reply.
  LOCKSTEP_COLD_DECL static bool fit(const Barrier& barrier);
  /// Whether a rank has not entered. One that has timed out is missing only if no other rank is.
  LOCKSTEP_COLD_DECL bool is_missing(const Barrier& barrier, std::size_t rank) const;
  /// The ranks that are missing, by name, at most eight.
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
