#pragma once

#include "lockstep/cluster/rendezvous/chief_address.hpp"

#include <cstddef>

#include "lockstep/cluster/rendezvous/file_limit.hpp"
#include "lockstep/core/fmt_core.hpp"

namespace lockstep::detail {

HostPort listening_address(const ResolvedCluster& cluster) {
  if (!cluster.bind) return *cluster.chief;
  return {cluster.bind->host, cluster.bind->port.value_or(cluster.chief->port)};
}

std::string chief_place(const JoinSetup& setup) {
  return setup.cluster.bind ? "LOCKSTEP_BIND" : "the chief's address";
}

std::optional<ListenFault> listen_at(Listener& listener, const LookupResult& found,
                                     const JoinSetup& setup) {
  constexpr std::size_t burst = 256;  // connections of others at the same moment
  const std::string where = chief_place(setup);
  std::string fault = found.error;
  bool only_loopback = true;
  for (const tcp::endpoint& endpoint : found.endpoints) {
    const auto error =
        listener.listen(endpoint, static_cast<int>(setup.cluster.world_size + burst));
    const std::string place =
        fmt::format("{} port {}", endpoint.address().to_string(), endpoint.port());
    only_loopback = only_loopback && endpoint.address().is_loopback();
    if (error == asio::error::address_in_use)
      return ListenFault{fmt::format(
          "{}: {} is in use by another process; stop it, or give the chief another port", where,
          place)};
    if (error == asio::error::access_denied)
      return ListenFault{fmt::format(
          "{}: this user may not listen at {}; use a port of 1024 or above", where, place)};
    if (error == asio::error::no_descriptors)
      return ListenFault{fmt::format("{}: cannot listen at {} ({}): {}", where, place,
                                     error.message(), files_sentence())};
    if (error && fault.empty())
      fault = fmt::format("cannot listen at {}: {}", place, error.message());
  }
  if (!listener.listening())
    return ListenFault{fmt::format("{}: {}{}", where, fault, bind_remedy), !found.numeric};
  const std::string& host = setup.cluster.chief->host;
  if (only_loopback && !setup.cluster.bind && !is_loopback(host))
    setup.log(
        LogLevel::warning,
        fmt::format(
            "the chief's host {} is a loopback address on this machine, so no other machine can "
            "reach it; set LOCKSTEP_BIND=0.0.0.0, or correct /etc/hosts",
            host));
  return std::nullopt;
}

}  // namespace lockstep::detail
