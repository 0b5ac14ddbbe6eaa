#pragma once

#include "lockstep/cluster/rendezvous/chief_address.hpp"

#include <algorithm>
#include <cstddef>

#include "lockstep/cluster/network/file_limit.hpp"
#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

HostPort listening_address(const ResolvedCluster& cluster) {
  if (!cluster.bind) return *cluster.chief;
  return {cluster.bind->host, cluster.bind->port.value_or(cluster.chief->port)};
}

std::string chief_place(const JoinSetup& setup) {
  return setup.cluster.bind ? "LOCKSTEP_BIND" : "the chief's address";
}

/// True if a process on another host may have to reach this one.
inline bool spans_hosts(const ResolvedCluster& cluster, const std::string& host) {
  if (!cluster.cluster) return cluster.world_size > cluster.local_size.value_or(1);
  for (std::size_t r = 0; r < cluster.world_size; ++r)
    if (cluster.cluster->address(r).host != host) return true;
  return false;
}

std::vector<tcp::endpoint> listening_endpoints(
    const LookupResult& found, const ResolvedCluster& cluster, const std::string& host,
    std::string_view what, bool is_secured,
    const std::function<void(LogLevel, std::string_view)>& log) {
  const bool only_loopback =
      std::all_of(found.endpoints.begin(), found.endpoints.end(),
                  [](const tcp::endpoint& one) { return one.address().is_loopback(); });
  if (found.endpoints.empty() || !only_loopback || cluster.bind || is_loopback(host) ||
      !spans_hosts(cluster, host))
    return found.endpoints;
  const tcp::endpoint& first = found.endpoints.front();
  if (is_secured) {
    log(LogLevel::warning,
        format_text("{} {} is a loopback address on this machine ({}), so it listens at all "
                    "addresses of this machine, as with LOCKSTEP_BIND=0.0.0.0; correct /etc/hosts "
                    "to avoid that",
                    what, host, first.address().to_string()));
    std::vector<tcp::endpoint> all;  // of each family that the name has here
    for (const tcp::endpoint& one : found.endpoints)
      if (const tcp::endpoint any(one.protocol(), one.port());
          std::find(all.begin(), all.end(), any) == all.end())
        all.push_back(any);
    return all;
  }
  log(LogLevel::warning,
      format_text("{} {} is a loopback address on this machine, so no other machine can reach it; "
                  "set LOCKSTEP_BIND=0.0.0.0, or correct /etc/hosts",
                  what, host));
  return found.endpoints;
}

/// `listen_at` for the port in `endpoints`.
inline std::optional<ListenFault> listen_at_port(Listener& listener,
                                                 const std::vector<tcp::endpoint>& endpoints,
                                                 const LookupResult& found,
                                                 const JoinSetup& setup) {
  constexpr std::size_t burst = 256;  // connections of others at the same moment
  const std::string where = chief_place(setup);
  std::string fault = found.error;
  for (const tcp::endpoint& endpoint : endpoints) {
    const auto error =
        listener.listen(endpoint, static_cast<int>(setup.cluster.world_size + burst));
    const std::string place =
        format_text("{} port {}", endpoint.address().to_string(), endpoint.port());
    if (error == asio::error::address_in_use)
      return ListenFault{
          format_text(
              "{}: {} is in use by another process; stop it, or give the chief another port", where,
              place),
          false, true};
    if (error == asio::error::access_denied)
      return ListenFault{format_text(
          "{}: this user may not listen at {}; use a port of 1024 or above", where, place)};
    if (error == asio::error::no_descriptors)
      return ListenFault{format_text("{}: cannot listen at {} ({}): {}", where, place,
                                     error.message(), files_sentence())};
    if (error && fault.empty())
      fault = format_text("cannot listen at {}: {}", place, error.message());
  }
  if (!listener.listening())
    return ListenFault{format_text("{}: {}{}", where, fault, bind_remedy), !found.numeric};
  return std::nullopt;
}

std::optional<ListenFault> listen_at(Listener& listener, const LookupResult& found,
                                     const JoinSetup& setup, bool is_secured) {
  auto endpoints = listening_endpoints(found, setup.cluster, setup.cluster.chief->host,
                                       "the chief's host", is_secured, setup.log);
  auto fault = listen_at_port(listener, endpoints, found, setup);
  if (setup.cluster.bind && setup.cluster.bind->port) return fault;
  for (const std::uint16_t port : setup.cluster.more_ports) {
    if (!fault || !fault->port_in_use) break;
    listener.stop();  // it may have one of several addresses
    for (tcp::endpoint& endpoint : endpoints) endpoint.port(port);
    const auto next = listen_at_port(listener, endpoints, found, setup);
    if (!next)
      setup.log(LogLevel::info,
                format_text("port {} is in use by another process; the chief listens at port {}, "
                            "the next of this job",
                            setup.cluster.chief->port, port));
    if (!next || !next->port_in_use) return next;
  }
  return fault;
}

}  // namespace lockstep::detail
