/// \file
/// The description of a job, as a process needs it to join. Invariants: `world_size` is at least 1;
/// a rank is below it; `chief` is set unless the process is alone.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cluster/description/host_port.hpp"
#include "lockstep/cluster/description/spec.hpp"
#include "lockstep/cluster/description/timeouts.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep {

/// The address on which the chief listens if that is not its public address: with NAT or in a
/// container.
struct BindAddress {
  std::string host;
  std::optional<std::uint16_t> port;  ///< nullopt: the chief's port
  bool operator==(const BindAddress&) const = default;
};

/// The ports on which a process accepts data connections, both ends included.
struct PortRange {
  std::uint16_t first = 0, last = 0;
  std::size_t size() const { return std::size_t{last} - first + 1; }
  bool operator==(const PortRange&) const = default;
};

/// How the processes of a job exchange data.
enum class Transport {
  automatic,     ///< through shared memory within a machine, over TCP between machines
  tcp,           ///< over TCP connections, also within a machine
  shared_memory  ///< refused if they run on several machines
};

/// The protection of data on TCP connections.
enum class WireSecurity {
  automatic,                 ///< `sealed` between machines, `plain` within one
  sealed,                    ///< encrypted and authenticated with AES-128-GCM
  plain,                     ///< a checksum; only within one machine
  plain_on_trusted_network,  ///< a checksum, also between machines
};

/// The program's own description of the job. It takes precedence over the environment.
struct ClusterArguments {
  std::optional<ClusterSpec> cluster{};
  std::optional<Task> task{};
  // For messages, if the program gets both from its user: where they come from, and how to set
  // them.
  std::string cluster_name = "the program's cluster";  ///< "--cluster hosts.json"
  std::string task_name = "the program's task";        ///< "--task"
  std::string options{};                               ///< "--cluster FILE and --task worker:0"
  bool allow_single = false;  ///< without a description: train with one worker
  bool has_servers = false;   ///< the job ps takes part; ls::ParameterServer sets it
  ClusterTimeouts timeouts{};
};

namespace detail {

/// Removes the zones of IPv6 addresses, "%eth0" in "[fe80::1%eth0]:80": each machine has its own.
inline std::string without_zones(std::string text) {
  for (auto zone = text.find('%'); zone != std::string::npos; zone = text.find('%', zone))
    text.erase(zone, text.find(']', zone) - zone);
  return text;
}

}  // namespace detail

/// The ranks that compute and those that own weights, in a job with parameter servers.
struct TaskRanks {
  Slice workers{}, servers{};
};

/// The job and this process' place in it.
struct ResolvedCluster {
  std::string source;                 ///< the chosen source: "TF_CONFIG", "torchrun"
  std::string job_id;                 ///< empty: derive it from `description()`
  std::size_t world_size = 1;         ///< processes that train, chief and servers included
  std::optional<std::size_t> rank{};  ///< nullopt: the chief assigns one (index "auto")
  std::optional<HostPort> chief{};    ///< rank 0's address; nullopt if the process is alone
  /// Other ports of the chief, for a port that the launcher's job number gives: it listens at the
  /// first free one of `chief`'s and these, and workers ask all of them.
  std::vector<std::uint16_t> more_ports{};
  bool compares_chief_host = true;    ///< false: `description()` leaves out the chief's host
  std::optional<BindAddress> bind{};  ///< LOCKSTEP_BIND
  std::optional<std::string> data_address{};    ///< LOCKSTEP_DATA_ADDRESS, an IPv4 or IPv6 address
  std::optional<std::string> data_interface{};  ///< LOCKSTEP_INTERFACE: a name or a network
  std::vector<std::string> more_interfaces{};   ///< after the first of a list
  std::optional<PortRange> data_ports{};       ///< LOCKSTEP_DATA_PORTS; nullopt: the system chooses
  Transport transport = Transport::automatic;  ///< LOCKSTEP_TRANSPORT
  WireSecurity wire = WireSecurity::automatic;  ///< LOCKSTEP_WIRE
  std::size_t connections = 1;           ///< LOCKSTEP_CONNECTIONS: of each group to each peer
  std::optional<ClusterSpec> cluster{};  ///< all addresses, if the source has them
  std::optional<TaskRanks>
      tasks{};  ///< of an elastic job's generation; otherwise `cluster` has them
  std::optional<std::size_t> local_rank{}, local_size{};  ///< on the same machine
  std::chrono::milliseconds rendezvous_timeout{60'000};   ///< LOCKSTEP_RENDEZVOUS_TIMEOUT
  ClusterTimeouts timeouts{};
  std::vector<std::string> notes{};  ///< to log once: source, ignored sources, warnings

  /// True for rank 0.
  bool is_chief() const { return rank == std::size_t{0}; }

  /// Equal text on all workers of a job, different for other jobs. It is compared at the join;
  /// without a job id, its digest is the id.
  [[gnu::cold]] std::string description() const {
    if (cluster) return detail::without_zones(cluster->json());
    std::string place = chief ? to_string(*chief) : std::string();
    if (chief && !compares_chief_host) place = format_text(":{}", chief->port);
    return format_text("{{\"chief\":\"{}\",\"world_size\":{}}}", detail::without_zones(place),
                       world_size);
  }

  /// A rank for messages: "rank 1 (worker:1, 10.0.0.2:12345)".
  [[gnu::cold]] std::string name(std::size_t which) const {
    if (cluster)
      return format_text("rank {} ({}, {})", which, to_string(cluster->task(which)),
                         to_string(cluster->address(which)));
    if (which == 0 && chief) return format_text("rank 0 ({})", to_string(*chief));
    return format_text("rank {}", which);
  }
};

}  // namespace lockstep
