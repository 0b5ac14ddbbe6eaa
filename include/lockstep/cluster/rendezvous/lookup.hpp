/// \file
/// Looks up the addresses of a host. Invariant: nobody waits for the resolver: it runs in a thread
/// of its own, which may outlive whoever asked.
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <asio/ip/tcp.hpp>
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
#include "lockstep/core/threads.hpp"

namespace lockstep::detail {

struct LookupResult {
  std::vector<asio::ip::tcp::endpoint> endpoints{};
  std::string error{};  ///< why there are none
};

/// All addresses of `address`, as the system gives them. Takes as long as the resolver does.
inline LookupResult look_up_now(const HostPort& address, bool numeric_only) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = numeric_only ? AI_NUMERICHOST : 0;
  addrinfo* list = nullptr;
  LookupResult result;
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

/// A question to the resolver. \code
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

}  // namespace lockstep::detail
