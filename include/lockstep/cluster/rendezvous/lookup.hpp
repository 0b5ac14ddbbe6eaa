/// \file
/// Looks up the addresses of a host. Invariant: nobody waits for the resolver: it runs in a thread
/// of its own, which may outlive whoever asked.
#pragma once

#include <asio/ip/tcp.hpp>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/cluster/host_port.hpp"
#include "lockstep/cluster/rendezvous/clock.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

struct LookupResult {
  std::vector<asio::ip::tcp::endpoint> endpoints{};
  std::string error{};   ///< why there are none
  bool numeric = false;  ///< the host is an address: asking again gives the same
};

/// One query to the resolver.
/// \code
///   Lookup lookup({"node0", 12345});
///   if (auto result = lookup.result()) ...   // look again later
/// \endcode
class Lookup {
 public:
  LOCKSTEP_COLD_DECL explicit Lookup(HostPort address);

  /// Nothing as long as the resolver works.
  LOCKSTEP_COLD_DECL std::optional<LookupResult> result() const;

 private:
  struct State {
    std::mutex mutex;
    std::optional<LookupResult> result;
  };
  std::shared_ptr<State> state_;
};

/// A host's addresses, looked up again from time to time: DNS may publish a name late, and a host
/// that is started again may have another address. Queries are a quarter of a second apart at
/// first, five seconds later; an address is looked up once.
/// \code
///   RepeatedLookup lookup({"node0", 12345});
///   if (const auto& result = lookup.poll(Clock::now())) ...   // the newest answer
/// \endcode
class RepeatedLookup {
 public:
  static constexpr milliseconds min_pause{250}, max_pause{5000};

  explicit RepeatedLookup(HostPort address) : address_(std::move(address)) {}

  /// The newest answer; nothing before the first. An answer without addresses does not replace one
  /// that has some.
  LOCKSTEP_COLD_DECL const std::optional<LookupResult>& poll(Clock::time_point now);
  /// So far.
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
#include "lockstep/cluster/rendezvous/lookup.ipp"
#endif
