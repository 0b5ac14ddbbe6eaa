/// \file
/// The hosts on which lockstep-run starts workers: from -H, a host file, or a scheduler's variables.
/// Invariant: each host has a valid name and at least one slot.
#pragma once

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/cluster/description/host_port.hpp>
#include <lockstep/cluster/description/slurm_lists.hpp>
#include <lockstep/core/error.hpp>
#include <lockstep/core/quote.hpp>

namespace lockstep_run {

/// A host and how many workers it may have.
struct HostSlots {
  std::string host;
  std::size_t slots = 1;
};

/// The number of workers in "node1:4" or "slots=4", which is `subject`; `hint` ends the message.
/// \throws std::runtime_error
inline std::size_t slot_count(std::string_view text, const std::string& subject,
                              std::string_view hint) {
  constexpr std::size_t most = 1024;
  const auto count = lockstep::detail::whole_number<std::size_t>(text);
  if (count && *count > 0 && *count <= most) return *count;
  throw std::runtime_error(fmt::format("{}: {} is not a number of workers from 1 to {}{}", subject,
                                       lockstep::detail::quote(text), most, hint));
}

/// "node1:4", "[fd00::1]:2" or "node1"; `where` begins the messages. \throws std::runtime_error
inline HostSlots parse_host(std::string_view entry, const std::string& where) {
  std::string_view host = entry, slots;
  const std::size_t end = entry.starts_with('[') ? entry.find(']') : std::string_view::npos;
  const std::size_t colon = end == std::string_view::npos ? entry.find(':') : entry.find(':', end);
  if (colon != std::string_view::npos) {
    host = entry.substr(0, colon);
    slots = entry.substr(colon + 1);
  }
  if (end != std::string_view::npos) host = entry.substr(1, end - 1);
  const std::string subject = fmt::format("{} {}", where, lockstep::detail::quote(entry));
  HostSlots result{lockstep::detail::checked_host(host, subject)};
  if (colon != std::string_view::npos)
    result.slots = slot_count(slots, subject, "; an IPv6 address is written in brackets");
  return result;
}

/// "a:2,b:4". \throws std::runtime_error
inline std::vector<HostSlots> parse_hosts(const std::string& list) {
  std::vector<HostSlots> hosts;
  std::istringstream entries(list);
  for (std::string entry; std::getline(entries, entry, ',');)
    hosts.push_back(parse_host(entry, "-H"));
  if (hosts.empty()) throw std::runtime_error("-H names no host");
  return hosts;
}

/// Lines "host", "host:2" or "host slots=2", with comments after '#'; a host that occurs several times,
/// as in PBS_NODEFILE, has the sum of its slots. \throws std::runtime_error
inline std::vector<HostSlots> read_hostfile(const std::string& path) {
  std::ifstream file(path);
  if (std::filesystem::is_directory(path))
    throw std::runtime_error(fmt::format("{} is a folder; write the name of a host file", path));
  if (!file) throw std::runtime_error(fmt::format("{}: {}", path, std::strerror(errno)));
  std::vector<HostSlots> hosts;
  std::size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    const std::string where = fmt::format("{} line {}:", path, ++number);
    std::istringstream words(line.substr(0, line.find('#')));
    std::string entry, word;
    if (!(words >> entry)) continue;
    HostSlots host = parse_host(entry, where);
    while (words >> word) {
      if (word.starts_with("max_slots=") || word.starts_with("max-slots=")) continue;
      if (!word.starts_with("slots="))
        throw std::runtime_error(fmt::format("{} {} is not known; write \"host slots=2\"", where,
                                             lockstep::detail::quote(word)));
      host.slots = slot_count(word.substr(6),
                              fmt::format("{} {}", where, lockstep::detail::quote(word)), "");
    }
    const auto same = std::find_if(hosts.begin(), hosts.end(),
                                   [&](const HostSlots& other) { return other.host == host.host; });
    if (same == hosts.end())
      hosts.push_back(std::move(host));
    else
      same->slots += host.slots;
  }
  if (hosts.empty())
    throw std::runtime_error(
        fmt::format("{} names no host; write a line \"host slots=2\" for each", path));
  return hosts;
}

/// The value of a variable of this process; "" if unset.
inline std::string variable_text(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// Whether this process runs in an allocation of Slurm, and not in a step of one, whose tasks srun has
/// started.
inline bool is_in_allocation() {
  if (variable_text("SLURM_JOB_NODELIST").empty()) return false;
  const auto step = lockstep::detail::whole_number<std::uint64_t>(variable_text("SLURM_STEP_ID"));
  return !step ||
         *step >= 0xFFFFFFF0U;  // from here on Slurm's own: batch script, interactive shell
}

/// The launcher that has started this process as one of several workers: "mpirun" or "srun"; "" if
/// there is none.
inline std::string launcher_of_worker() {
  const auto is_one_of_several = [](const char* rank, const char* size) {
    const auto number = lockstep::detail::whole_number<std::uint64_t>(variable_text(size));
    return !variable_text(rank).empty() && number && *number > 1;
  };
  if (is_one_of_several("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE") ||
      is_one_of_several("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"))
    return "mpirun";
  const bool is_in_step = !variable_text("SLURM_STEP_ID").empty() && !is_in_allocation();
  if (is_in_step && is_one_of_several("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")) return "srun";
  return is_one_of_several("PMI_RANK", "PMI_SIZE") ? "mpirun" : "";
}

/// The hosts of the scheduler's allocation: Slurm's, or of PBS_NODEFILE; empty if there is none.
/// \throws std::runtime_error
inline std::vector<HostSlots> hosts_of_scheduler() {
  // First: in a batch script SLURM_JOB_NODELIST has the hosts of the first component.
  if (!variable_text("SLURM_JOB_NODELIST_HET_GROUP_0").empty())
    throw std::runtime_error(
        "this allocation of Slurm has several components (SLURM_JOB_NODELIST_HET_GROUP_0 is set), "
        "whose hosts are not read; start the program with srun --het-group=0,1, or name the hosts by "
        "-H a:2,b:4 and set LOCKSTEP_RSH=ssh");
  if (is_in_allocation()) {
    const lockstep::detail::HostList nodes(variable_text("SLURM_JOB_NODELIST"),
                                           "SLURM_JOB_NODELIST");
    const std::string tasks = variable_text("SLURM_TASKS_PER_NODE");
    std::vector<HostSlots> hosts;
    for (std::size_t i = 0; i < nodes.size(); ++i) hosts.push_back({nodes[i], 1});
    if (tasks.empty()) return hosts;
    const lockstep::detail::TasksPerNode each(tasks, "SLURM_TASKS_PER_NODE");
    for (std::size_t i = 0; i < hosts.size() && i < each.nodes(); ++i) hosts[i].slots = each[i];
    return hosts;
  }
  const std::string nodes = variable_text("PBS_NODEFILE");
  return nodes.empty() ? std::vector<HostSlots>{} : read_hostfile(nodes);
}

/// The host of each rank: `workers` of them, or one per slot if `workers` is 0. \throws
/// std::runtime_error
inline std::vector<std::string> place_workers(const std::vector<HostSlots>& hosts,
                                              std::size_t workers, std::size_t servers = 0) {
  std::vector<std::string> places;
  for (const HostSlots& host : hosts) places.insert(places.end(), host.slots, host.host);
  if (workers > places.size())
    throw std::runtime_error(fmt::format(
        "-n {}{}: the hosts have only {} slots; write more, as in -H a:2,b:4", workers - servers,
        servers > 0 ? fmt::format(" --ps {}", servers) : "", places.size()));
  if (workers > 0) places.resize(workers);
  return places;
}

/// Whether a name or an address is that of this machine.
inline bool is_this_machine(const std::string& host) {
  std::array<char, 256> name{};
  if (host == "localhost" ||
      (::gethostname(name.data(), name.size() - 1) == 0 && host == name.data()))
    return true;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, ::freeaddrinfo);
  ifaddrs* listed = nullptr;
  if (::getifaddrs(&listed) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> interfaces(listed, ::freeifaddrs);
  const auto is_equal = [](const sockaddr& a, const sockaddr& b) {
    if (a.sa_family != b.sa_family) return false;
    if (a.sa_family == AF_INET) {
      const auto& one = reinterpret_cast<const sockaddr_in&>(a).sin_addr;
      const auto& other = reinterpret_cast<const sockaddr_in&>(b).sin_addr;
      constexpr std::uint32_t loopback = 127;  // 127.0.0.0/8
      return one.s_addr == other.s_addr ||
             (ntohl(one.s_addr) >> 24 == loopback && ntohl(other.s_addr) >> 24 == loopback);
    }
    return a.sa_family == AF_INET6 &&
           std::memcmp(&reinterpret_cast<const sockaddr_in6&>(a).sin6_addr,
                       &reinterpret_cast<const sockaddr_in6&>(b).sin6_addr, sizeof(in6_addr)) == 0;
  };
  for (const addrinfo* address = found; address; address = address->ai_next)
    for (const ifaddrs* own = listed; own; own = own->ifa_next)
      if (own->ifa_addr && is_equal(*address->ai_addr, *own->ifa_addr)) return true;
  return false;
}

}  // namespace lockstep_run
