/// \file
/// The variables of lockstep that apply to every source: LOCKSTEP_JOB_ID, _RANK, _PORT,
/// _COORDINATOR, _BIND, _DATA_ADDRESS, _INTERFACE, _DATA_PORTS, _TRANSPORT, _WIRE,
/// _CONNECTIONS, _LAUNCHER, _RENDEZVOUS_TIMEOUT, _MIN_WORKERS, _ELASTIC_DIRECTORY, and those of
/// timeouts.hpp. Invariant: they do not contradict each other.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/description/elastic_options.hpp"
#include "lockstep/cluster/description/environment.hpp"
#include "lockstep/cluster/description/host_port.hpp"
#include "lockstep/cluster/description/resolved_cluster.hpp"
#include "lockstep/cluster/description/timeouts.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// The parsed variables; unset ones are empty.
struct ClusterSettings {
  std::string job_id{};
  std::optional<std::size_t> rank{};
  std::optional<std::uint16_t> port{};
  std::optional<HostPort> coordinator{};
  std::optional<BindAddress> bind{};
  std::optional<std::string> data_address{}, data_interface{};
  std::vector<std::string> more_interfaces{};  ///< after the first of a list
  std::optional<PortRange> data_ports{};
  Transport transport = Transport::automatic;
  WireSecurity wire = WireSecurity::automatic;
  std::size_t connections = 1;
  std::string launcher{};  ///< empty: first complete source
  std::chrono::milliseconds rendezvous_timeout{60'000};
  ClusterTimeouts timeouts{};
};

/// A job id must be safe in logs and as a key: printable, without white space, at most 128 bytes.
/// \throws ClusterError
LOCKSTEP_COLD_DECL void check_job_id(std::string_view id, std::string_view name);

/// Parses the variables. \throws ClusterError that names the variable.
LOCKSTEP_COLD_DECL ClusterSettings read_settings(const Environment& environment);

/// `options`, with LOCKSTEP_MIN_WORKERS and LOCKSTEP_ELASTIC_DIRECTORY instead of members that are not
/// set. \throws ClusterError that names the variable.
LOCKSTEP_COLD_DECL Elastic elastic_settings(Elastic options, const Environment& environment);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/description/settings.ipp"
#endif
