/// \file
/// The variables of lockstep that hold whatever source describes the job: LOCKSTEP_JOB_ID, _RANK,
/// _PORT, _COORDINATOR, _BIND, _LAUNCHER, _RENDEZVOUS_TIMEOUT. Invariant: they do not contradict
/// each other.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "lockstep/cluster/environment.hpp"
#include "lockstep/cluster/host_port.hpp"
#include "lockstep/cluster/resolved_cluster.hpp"
#include "lockstep/cluster/shown.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::detail {

struct ClusterSettings {
  std::string job_id{};
  std::optional<std::size_t> rank{};
  std::optional<std::uint16_t> port{};
  std::optional<HostPort> coordinator{};
  std::optional<BindAddress> bind{};
  std::string launcher{};  ///< empty: not picked
  std::chrono::milliseconds rendezvous_timeout{60'000};
};

/// A job's id goes through logs and keys.
/// \throws ClusterError
inline void check_job_id(std::string_view id, std::string_view name) {
  const bool printable =
      std::all_of(id.begin(), id.end(), [](char c) { return c > ' ' && c < 0x7F; });
  if (!printable || id.size() > 128)
    throw ClusterError({name, "=", shown(id),
                        " is no id of a job; write at most 128 printable "
                        "characters without blanks"});
}

/// "ADDRESS", "ADDRESS:PORT", "[::]:PORT", "::".
/// \throws ClusterError
inline BindAddress parse_bind(std::string_view entry, std::string_view name) {
  const std::string subject = text({name, "=", shown(entry)});
  const auto colon = entry.rfind(':');
  if (colon == std::string_view::npos || entry.ends_with(']') || ipv6(entry))
    return {checked_host(entry, subject), std::nullopt};
  return {checked_host(entry.substr(0, colon), subject),
          checked_port(entry.substr(colon + 1), subject)};
}

/// Seconds. \throws ClusterError
inline std::chrono::milliseconds parse_timeout(std::string_view entry, std::string_view name) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), seconds);
  if (error != std::errc{} || end != entry.data() + entry.size() ||
      !(seconds >= 0.001 && seconds <= 86'400))
    throw ClusterError({name, "=", shown(entry), " is no time; write seconds from 0.001 to 86400"});
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

/// \throws ClusterError that names the variable.
inline ClusterSettings read_settings(const Environment& environment) {
  ClusterSettings settings;
  if (const auto id = variable(environment, "LOCKSTEP_JOB_ID")) {
    check_job_id(*id, "LOCKSTEP_JOB_ID");
    settings.job_id = *id;
  }
  settings.rank = number_variable(environment, "LOCKSTEP_RANK");
  if (const auto port = variable(environment, "LOCKSTEP_PORT"))
    settings.port = checked_port(*port, "LOCKSTEP_PORT");
  if (const auto entry = variable(environment, "LOCKSTEP_COORDINATOR")) {
    settings.coordinator = parse_host_port(*entry, "LOCKSTEP_COORDINATOR");
    if (settings.port && *settings.port != settings.coordinator->port)
      throw ClusterError({"LOCKSTEP_COORDINATOR ", shown(*entry), " and LOCKSTEP_PORT ",
                          *settings.port, " name two ports of the chief; unset one of them"});
  }
  if (const auto entry = variable(environment, "LOCKSTEP_BIND"))
    settings.bind = parse_bind(*entry, "LOCKSTEP_BIND");
  if (const auto entry = variable(environment, "LOCKSTEP_RENDEZVOUS_TIMEOUT"))
    settings.rendezvous_timeout = parse_timeout(*entry, "LOCKSTEP_RENDEZVOUS_TIMEOUT");
  if (const auto entry = variable(environment, "LOCKSTEP_LAUNCHER")) {
    constexpr std::array<std::string_view, 6> launchers{"tf_config", "torchrun", "mpi",
                                                        "slurm",     "pmi",      "none"};
    if (std::find(launchers.begin(), launchers.end(), *entry) == launchers.end())
      throw ClusterError({"LOCKSTEP_LAUNCHER=", shown(*entry),
                          " is no launcher; write tf_config, "
                          "torchrun, mpi, slurm, pmi or none"});
    settings.launcher = *entry;
  }
  return settings;
}

}  // namespace lockstep::detail
