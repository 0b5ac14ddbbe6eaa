/// \file
/// Host name resolution that never blocks the control thread. Invariant: getaddrinfo runs on a
/// detached thread, which may outlive the object that started it: a resolver can hang for minutes.
#pragma once

#include <asio/ip/tcp.hpp>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/cluster/description/host_port.hpp"
#include "lockstep/cluster/network/clock.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// The addresses of a host, or why there are none.
struct LookupResult {
  std::vector<asio::ip::tcp::endpoint> endpoints{};
  std::string error{};   ///< why there are no endpoints
  bool numeric = false;  ///< the host is an IP address, so the result never changes
};

/// One query to the resolver.
/// \code
///   Lookup lookup({"node0", 12345});
///   if (auto result = lookup.result()) ...   // else poll again later
/// \endcode
class Lookup {
 public:
  /// Starts the query. An IP address is resolved at once, without a thread.
  LOCKSTEP_COLD_DECL explicit Lookup(HostPort address);

  /// The result; nullopt while the resolver is working.
  LOCKSTEP_COLD_DECL std::optional<LookupResult> result() const;

 private:
  /// Shared with the thread of the query, which may outlive this object.
  struct State {
    std::mutex mutex;
    std::optional<LookupResult> result;
  };
  std::shared_ptr<State> state_;
};

/// A host's addresses, resolved again from time to time: DNS may publish a name late, and a
/// restarted host may have a new address. Queries are 0.25 s apart at first and 5 s later on; an IP
/// address is resolved once.
/// \code
///   RepeatedLookup lookup({"node0", 12345});
///   if (const auto& result = lookup.poll(Clock::now())) ...   // the newest answer
/// \endcode
class RepeatedLookup {
 public:
  static constexpr milliseconds min_pause{250}, max_pause{5000};

  /// No query starts before the first `poll`.
  explicit RepeatedLookup(HostPort address) : address_(std::move(address)) {}

  /// The newest result; nullopt before the first. A failed query does not replace addresses that
  /// were found. Starts the next query when it is due.
  LOCKSTEP_COLD_DECL const std::optional<LookupResult>& poll(Clock::time_point now);
  /// The number of queries so far.
  std::size_t queries() const { return queries_; }

 private:
  HostPort address_;
  std::optional<Lookup> query_{};
  std::optional<LookupResult> newest_{};
  Clock::time_point next_{};
  milliseconds pause_ = min_pause / 2;
  std::size_t queries_ = 0;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/network/lookup.ipp"
#endif
