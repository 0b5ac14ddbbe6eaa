#pragma once

#include "lockstep/cluster/description/settings.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/quote.hpp"

namespace lockstep::detail {

void check_job_id(std::string_view id, std::string_view name) {
  const bool printable =
      std::all_of(id.begin(), id.end(), [](char c) { return c > ' ' && c < 0x7F; });
  if (!printable || id.size() > 128)
    throw ClusterError(
        "{}={} is not a valid job id; use at most 128 printable characters without spaces", name,
        quote(id));
}

/// Parses "ADDRESS", "ADDRESS:PORT", "[::]:PORT" or "::". \throws ClusterError
inline BindAddress parse_bind(std::string_view entry, std::string_view name) {
  const std::string subject = format_text("{}={}", name, quote(entry));
  const auto colon = entry.rfind(':');
  // A colon may belong to a bare IPv6 address.
  if (colon == std::string_view::npos || entry.ends_with(']') || ipv6(entry))
    return {checked_host(entry, subject), std::nullopt};
  return {checked_host(entry.substr(0, colon), subject),
          checked_port(entry.substr(colon + 1), subject)};
}

/// Parses "10.0.0.7" or "fd00::7". The address is not resolved, so it must be numeric. \throws
/// ClusterError
inline std::string parse_data_address(std::string_view entry, std::string_view name) {
  const std::string subject = format_text("{}={}", name, quote(entry));
  const std::string host = checked_host(entry, subject);
  const bool numeric = ipv6(host) || std::all_of(host.begin(), host.end(),
                                                 [](char c) { return is_digit(c) || c == '.'; });
  if (!numeric)
    throw ClusterError(
        "{} is a host name; write a numeric address of this machine, such as 10.0.0.7", subject);
  if (host == "0.0.0.0" || host == "::")
    throw ClusterError(
        "{} is a wildcard address; write the address at which the other machines reach this one",
        subject);
  return host;
}

/// Parses "eth1", "10.0.0.0/8" or "fd00::/8". \throws ClusterError
inline std::string parse_interface(std::string_view entry, std::string_view name) {
  const std::string subject = format_text("{}={}", name, quote(entry));
  const auto is_numeric = [](std::string_view host) {
    return ipv6(host) ||
           std::all_of(host.begin(), host.end(), [](char c) { return is_digit(c) || c == '.'; });
  };
  const auto slash = std::min(entry.find('/'), entry.size());
  if (slash < entry.size()) {
    if (!is_numeric(entry.substr(0, slash)))
      throw ClusterError("{} is not a network; write one such as 10.0.0.0/8 or fd00::/8", subject);
    const std::string host = checked_host(entry.substr(0, slash), subject);
    const auto bits = whole_number<std::uint32_t>(entry.substr(slash + 1));
    const std::uint32_t most = ipv6(host) ? 128 : 32;
    if (!bits || *bits > most)
      throw ClusterError("{} is not a network; write a number from 0 to {} after the slash",
                         subject, most);
    return format_text("{}/{}", host, *bits);
  }
  if (entry.empty())
    throw ClusterError("{} has an empty entry; write interfaces separated by commas", name);
  if (is_numeric(entry))
    throw ClusterError("{} is an address; set LOCKSTEP_DATA_ADDRESS to it, or write a network",
                       subject);
  constexpr std::size_t max_name = 15;  // IFNAMSIZ of Linux, without the final zero
  const bool printable = std::all_of(entry.begin(), entry.end(),
                                     [](char c) { return c > ' ' && c < 0x7F && c != ','; });
  if (!printable || entry.size() > max_name)
    throw ClusterError(
        "{} is not an interface; write the name of one, such as eth1, or a network, such as "
        "10.0.0.0/8",
        subject);
  return std::string(entry);
}

/// Parses a list of different interfaces, separated by commas. \throws ClusterError
inline std::vector<std::string> parse_interfaces(std::string_view entry, std::string_view name) {
  std::vector<std::string> all;
  for (std::size_t first = 0; first <= entry.size();) {
    const std::size_t end = std::min(entry.find(',', first), entry.size());
    std::string one = parse_interface(entry.substr(first, end - first), name);
    if (std::find(all.begin(), all.end(), one) != all.end())
      throw ClusterError("{}={} has {} twice; write each interface once", name, quote(entry), one);
    all.push_back(std::move(one));
    first = end + 1;
  }
  return all;
}

/// Parses "5000" or "5000-5010". \throws ClusterError
inline PortRange parse_port_range(std::string_view entry, std::string_view name) {
  const std::string subject = format_text("{}={}", name, quote(entry));
  const auto dash = std::min(entry.find('-'), entry.size());
  PortRange range;
  range.first = range.last = checked_port(entry.substr(0, dash), subject);
  if (dash < entry.size()) range.last = checked_port(entry.substr(dash + 1), subject);
  if (range.last < range.first)
    throw ClusterError("{} ends before it begins; write the lower port first", subject);
  return range;
}

/// Parses seconds, such as "2.5". \throws ClusterError
inline std::chrono::milliseconds parse_timeout(
    std::string_view entry, std::string_view name,
    std::chrono::milliseconds least = std::chrono::milliseconds(1)) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), seconds);
  if (error != std::errc{} || end != entry.data() + entry.size() ||
      !(seconds * 1000 >= static_cast<double>(least.count()) && seconds <= 86'400))
    throw ClusterError("{}={} is not a valid timeout; write seconds from {} to 86400", name,
                       quote(entry), static_cast<double>(least.count()) / 1000);
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

/// \throws ClusterError
inline Transport parse_transport(std::string_view entry, std::string_view name) {
  if (entry == "auto") return Transport::automatic;
  if (entry == "tcp") return Transport::tcp;
  if (entry == "shared_memory") return Transport::shared_memory;
  throw ClusterError("{}={} is not a transport; write auto, tcp or shared_memory", name,
                     quote(entry));
}

/// \throws ClusterError
inline WireSecurity parse_wire(std::string_view entry, std::string_view name) {
  if (entry == "auto") return WireSecurity::automatic;
  if (entry == "sealed") return WireSecurity::sealed;
  if (entry == "plain") return WireSecurity::plain;
  if (entry == "plain_on_trusted_network") return WireSecurity::plain_on_trusted_network;
  throw ClusterError(
      "{}={} is not known; write auto, sealed, plain, or plain_on_trusted_network if no stranger "
      "can reach the workers' network",
      name, quote(entry));
}

ClusterSettings read_settings(const Environment& environment) {
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
      throw ClusterError(
          "LOCKSTEP_COORDINATOR {} and LOCKSTEP_PORT {} give different ports for the chief; unset "
          "one of them",
          quote(*entry), *settings.port);
  }
  if (const auto entry = variable(environment, "LOCKSTEP_BIND"))
    settings.bind = parse_bind(*entry, "LOCKSTEP_BIND");
  if (const auto entry = variable(environment, "LOCKSTEP_DATA_ADDRESS"))
    settings.data_address = parse_data_address(*entry, "LOCKSTEP_DATA_ADDRESS");
  if (const auto entry = variable(environment, "LOCKSTEP_INTERFACE")) {
    std::vector<std::string> all = parse_interfaces(*entry, "LOCKSTEP_INTERFACE");
    settings.data_interface = all.front();
    settings.more_interfaces.assign(all.begin() + 1, all.end());
  }
  if (settings.data_address && settings.data_interface)
    throw ClusterError(
        "LOCKSTEP_DATA_ADDRESS={} and LOCKSTEP_INTERFACE={} both choose the address for data; "
        "unset one of them",
        *settings.data_address, *settings.data_interface);
  for (const char* name : {"LOCKSTEP_DATA_PORTS", "LOCKSTEP_PORT_RANGE"}) {
    const auto entry = variable(environment, name);
    if (!entry) continue;
    const PortRange range = parse_port_range(*entry, name);
    if (settings.data_ports && settings.data_ports != range)
      throw ClusterError(
          "LOCKSTEP_DATA_PORTS and LOCKSTEP_PORT_RANGE are two names of one setting, but differ; "
          "unset one of them");
    settings.data_ports = range;
  }
  if (const auto entry = variable(environment, "LOCKSTEP_TRANSPORT"))
    settings.transport = parse_transport(*entry, "LOCKSTEP_TRANSPORT");
  if (const auto entry = variable(environment, "LOCKSTEP_WIRE"))
    settings.wire = parse_wire(*entry, "LOCKSTEP_WIRE");
  if (const auto entry = variable(environment, "LOCKSTEP_CONNECTIONS")) {
    constexpr std::size_t most = 16;
    const auto count = whole_number<std::size_t>(*entry);
    if (!count || *count < 1 || *count > most)
      throw ClusterError("LOCKSTEP_CONNECTIONS={} is not valid; write a number from 1 to {}",
                         quote(*entry), most);
    settings.connections = *count;
    if (settings.connections <= settings.more_interfaces.size())
      throw ClusterError(
          "LOCKSTEP_CONNECTIONS={} is less than the {} interfaces of LOCKSTEP_INTERFACE; write at "
          "least one connection for each, or unset it",
          *count, settings.more_interfaces.size() + 1);
  } else {
    settings.connections = settings.more_interfaces.size() + 1;
  }
  if (const auto entry = variable(environment, "LOCKSTEP_RENDEZVOUS_TIMEOUT"))
    settings.rendezvous_timeout = parse_timeout(*entry, "LOCKSTEP_RENDEZVOUS_TIMEOUT");
  for (const TimeoutRow& row : timeout_rows)
    if (const auto entry = variable(environment, std::string(row.variable)))
      settings.timeouts.*row.member = parse_timeout(*entry, row.variable, row.least);
  if (const auto entry = variable(environment, "LOCKSTEP_LAUNCHER")) {
    constexpr std::array<std::string_view, 6> launchers{"tf_config", "torchrun", "mpi",
                                                        "slurm",     "pmi",      "none"};
    if (std::find(launchers.begin(), launchers.end(), *entry) == launchers.end())
      throw ClusterError(
          "LOCKSTEP_LAUNCHER={} is not a launcher; write tf_config, torchrun, mpi, slurm, pmi or "
          "none",
          quote(*entry));
    settings.launcher = *entry;
  }
  return settings;
}

Elastic elastic_settings(Elastic options, const Environment& environment) {
  const auto entry = variable(environment, "LOCKSTEP_MIN_WORKERS");
  if (entry && options.min_workers == 0) {
    const auto count = whole_number<std::size_t>(*entry);
    if (!count || *count < 1)
      throw ClusterError(
          "LOCKSTEP_MIN_WORKERS={} is not valid; write the fewest workers that go on after a loss, "
          "at least 1",
          quote(*entry));
    options.min_workers = *count;
  }
  if (options.directory.empty())
    options.directory = variable(environment, "LOCKSTEP_ELASTIC_DIRECTORY").value_or("");
  return options;
}

}  // namespace lockstep::detail
