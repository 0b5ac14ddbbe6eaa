/// \file
/// Looks up the addresses of a host. Invariant: nobody waits for the resolver: it runs in a thread
/// of its own, which may outlive whoever asked.
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <asio/ip/tcp.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/cluster/host_port.hpp"
#include "lockstep/cluster/rendezvous/clock.hpp"
#include "lockstep/core/threads.hpp"

namespace lockstep::detail {

struct LookupResult {
  std::vector<asio::ip::tcp::endpoint> endpoints{};
  std::string error{};   ///< why there are none
  bool numeric = false;  ///< the host is an address: asking again gives the same
};

/// All addresses of `address`, as the system gives them. Takes as long as the resolver does.
inline LookupResult look_up_now(const HostPort& address, bool numeric_only) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = numeric_only ? AI_NUMERICHOST : 0;
  addrinfo* list = nullptr;
  LookupResult result;
  result.numeric = numeric_only;
  const int fault = ::getaddrinfo(address.host.c_str(), nullptr, &hints, &list);
  if (fault != 0) {
    result.error = std::string("the host cannot be looked up: ") + ::gai_strerror(fault);
    return result;
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  for (const addrinfo* i = list; i; i = i->ai_next) {
    asio::ip::tcp::endpoint endpoint;
    if (i->ai_addrlen > endpoint.capacity()) continue;
    std::memcpy(endpoint.data(), i->ai_addr, i->ai_addrlen);
    endpoint.resize(i->ai_addrlen);
    endpoint.port(address.port);
    result.endpoints.push_back(endpoint);
  }
  if (result.endpoints.empty()) result.error = "the host has no address";
  return result;
}

/// One query to the resolver.
/// \code
///   Lookup lookup({"node0", 12345});
///   if (auto result = lookup.result()) ...   // look again later
/// \endcode
class Lookup {
 public:
  explicit Lookup(HostPort address) : state_(std::make_shared<State>()) {
    LookupResult numeric = look_up_now(address, true);
    if (!numeric.endpoints.empty()) {
      state_->result = std::move(numeric);
      return;
    }
    const SignalsBlocked blocked;
    try {
      std::thread([state = state_, address = std::move(address)] {
        LookupResult found = look_up_now(address, false);
        const std::scoped_lock lock(state->mutex);
        state->result = std::move(found);
      }).detach();
    } catch (const std::system_error&) {
      state_->result = LookupResult{{}, "no thread could be started to look up the host"};
    }
  }

  /// Nothing as long as the resolver works.
  std::optional<LookupResult> result() const {
    const std::scoped_lock lock(state_->mutex);
    return state_->result;
  }

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
  static constexpr milliseconds shortest_pause{250}, longest_pause{5000};

  explicit RepeatedLookup(HostPort address) : address_(std::move(address)) {}

  /// The newest answer; nothing before the first. An answer without addresses does not replace one
  /// that has some.
  const std::optional<LookupResult>& poll(Clock::time_point now) {
    if (!query_ && now >= next_) {
      query_.emplace(address_);
      ++queries_;
    }
    if (!query_) return newest_;
    auto answer = query_->result();
    if (!answer) return newest_;
    query_.reset();
    const bool found = !answer->endpoints.empty();
    pause_ = found ? longest_pause : std::min(2 * pause_, longest_pause);
    next_ = answer->numeric ? Clock::time_point::max() : now + pause_;
    if (found || !newest_ || newest_->endpoints.empty()) newest_ = std::move(answer);
    return newest_;
  }
  /// So far.
  std::size_t queries() const { return queries_; }

 private:
  HostPort address_;
  std::optional<Lookup> query_{};
  std::optional<LookupResult> newest_{};
  Clock::time_point next_{};
  milliseconds pause_ = shortest_pause / 2;
  std::size_t queries_ = 0;
};

}  // namespace lockstep::detail
