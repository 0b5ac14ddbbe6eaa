#pragma once

#include "lockstep/cluster/network/lookup.hpp"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "lockstep/core/error.hpp"
#include "lockstep/core/process/threads.hpp"

namespace lockstep::detail {

/// Resolves `address` with getaddrinfo. Blocks unless `numeric_only`.
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
    result.error = std::string("the host name cannot be resolved: ") + ::gai_strerror(fault);
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

Lookup::Lookup(HostPort address) : state_(std::make_shared<State>()) {
  LookupResult numeric = look_up_now(address, true);
  if (!numeric.endpoints.empty()) {
    state_->result = std::move(numeric);
    return;
  }
  try {
    start_thread("lookup", [state = state_, address = std::move(address)] {
      LookupResult found = look_up_now(address, false);
      const std::scoped_lock lock(state->mutex);
      state->result = std::move(found);
    }).detach();
  } catch (const Error&) {
    state_->result = LookupResult{{}, "no thread could be started to resolve the host name"};
  }
}

std::optional<LookupResult> Lookup::result() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->result;
}

const std::optional<LookupResult>& RepeatedLookup::poll(Clock::time_point now) {
  if (!query_ && now >= next_) {
    query_.emplace(address_);
    ++queries_;
  }
  if (!query_) return newest_;
  auto answer = query_->result();
  if (!answer) return newest_;
  query_.reset();
  const bool found = !answer->endpoints.empty();
  // Found addresses are refreshed rarely; a missing name is retried with a growing pause.
  pause_ = found ? max_pause : std::min(2 * pause_, max_pause);
  next_ = answer->numeric ? Clock::time_point::max() : now + pause_;
  if (found || !newest_ || newest_->endpoints.empty()) newest_ = std::move(answer);
  return newest_;
}

}  // namespace lockstep::detail
