#pragma once

#include "lockstep/strategies/tcp_plane.hpp"

#include <chrono>
#include <exception>
#include <map>
#include <optional>
#include <utility>

#include "lockstep/cluster/rendezvous/data_connector.hpp"
#include "lockstep/cluster/rendezvous/file_limit.hpp"
#include "lockstep/cluster/rendezvous/rendezvous.hpp"
#include "lockstep/cluster/resolved_cluster.hpp"
#include "lockstep/collectives/shared_memory_group.hpp"
#include "lockstep/collectives/tcp_group.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/fmt_core.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/strategies/shared_job.hpp"

namespace lockstep {

namespace detail {

/// Creates or opens the memory. \return why the first rank failed; empty if all have opened it.
inline std::string share_memory(const JobLinks& links, std::shared_ptr<SharedMemory>& memory) {
  Rendezvous& job = links.rendezvous();
  const SharedMemory::Options options{.bytes = SharedMemoryGroup::bytes(links.size(), 2),
                                      .heap = SharedMemoryGroup::heap_bytes(links.size(), 2),
                                      .run{job.run_id().begin(), job.run_id().end()},
                                      .name = links.key("memory"),
                                      .key{job.key().begin(), job.key().end()}};
  const auto key_of = [&](std::size_t r) { return links.key(fmt::format("memory/{}", r)); };
  constexpr std::string_view ok = "ok ";
  const auto report = [&](const auto& f) {
    std::string result;
    try {
      result = std::string(ok) + f();
    } catch (const std::exception& e) {
      result = fmt::format("rank {}: {}", links.rank(), e.what());
    }
    job.set(key_of(links.rank()), result);
  };
  if (links.rank() == 0)
    report([&] {
      memory = SharedMemory::create(options);
      SharedMemoryGroup::reserve(*memory, links.rank(), links.size(), 2);
      return memory->place();
    });
  const std::string place = job.get(key_of(0), links.start_timeout);
  if (!place.starts_with(ok)) return place;
  if (links.rank() > 0)
    report([&] {
      memory = SharedMemory::open(std::string_view(place).substr(ok.size()), options);
      SharedMemoryGroup::reserve(*memory, links.rank(), links.size(), 2);
      return std::string();
    });
  for (std::size_t r = 1; r < links.size(); ++r) {
    const std::string result = job.get(key_of(r), links.start_timeout);
    if (!result.starts_with(ok)) return result;
  }
  memory->close_file();
  return {};
}

std::shared_ptr<SharedMemory> open_shared_memory(const JobLinks& links) {
  if (links.where.transport == Transport::tcp) return nullptr;
  std::string reason;
  std::shared_ptr<SharedMemory> memory;
  for (const WorkerPlace& place : links.places)
    if (place.machine != links.places[0].machine) reason = "the workers run on several machines";
  const bool is_one_machine = reason.empty();
  if (is_one_machine && links.size() > SharedMemoryGroup::max_size)
    reason = fmt::format("it has at most {} workers", SharedMemoryGroup::max_size);
  if (reason.empty()) reason = share_memory(links, memory);
  if (reason.empty()) return memory;
  if (links.where.transport == Transport::shared_memory) {
    // All know it before one leaves.
    links.rendezvous().barrier(links.key("memory is refused"), links.start_timeout);
    links.peers_know = true;
    throw ClusterError(
        "LOCKSTEP_TRANSPORT=shared_memory: the workers cannot exchange over shared memory: {}; use "
        "auto or tcp",
        reason);
  }
  if (is_one_machine && links.rank() == 0)
    log(LogLevel::info, fmt::format("the workers exchange over TCP: {}", reason));
  return nullptr;
}

/// Whether data between this process and `peer` carry a checksum only.
inline bool is_plain(const JobLinks& links, std::size_t peer) {
  const WireSecurity wire = links.where.wire;
  if (wire == WireSecurity::automatic)
    return links.places[peer].machine == links.places[links.rank()].machine;
  return wire != WireSecurity::sealed;
}

inline void check_wire(const JobLinks& links) {
  if (links.where.wire != WireSecurity::plain) return;
  for (std::size_t r = 1; r < links.size(); ++r) {
    if (links.places[r].machine == links.places[0].machine) continue;
    links.rendezvous().barrier(links.key("plain is refused"), links.start_timeout);
    links.peers_know = true;
    throw ClusterError(
        "LOCKSTEP_WIRE=plain: ranks 0 and {} run on different machines, and gradients would travel "
        "unprotected between them; use auto, or plain_on_trusted_network if no stranger can reach "
        "that network",
        r);
  }
}

std::shared_ptr<TcpMesh> connect_tcp(const JobLinks& links) {
  check_wire(links);
  Rendezvous& job = links.rendezvous();
  const TcpMesh::Options mesh{
      .rank = links.rank(), .size = links.size(), .silence = job.timeouts().silence};
  std::string run;
  for (const std::uint8_t byte : job.run_id()) run += fmt::format("{:02x}", byte);
  DataOptions options{.rank = mesh.rank,
                      .peers = peers_of(mesh.rank, mesh.size, mesh.topology),
                      .per_peer = mesh.channels,
                      .address = job.local_address(),
                      .ports = links.where.data_ports,
                      .run = links.key(run),
                      .key = Secret(std::string(job.key().begin(), job.key().end())),
                      .silence = job.timeouts().silence,
                      .log = [&job](std::string_view line) { job.log(LogLevel::warning, line); }};
  check_file_limit(options.peers.size() * options.per_peer,
                   fmt::format("the data connections to {} workers", options.peers.size()));
  DataConnector connector(options);
  const auto key_of = [&](std::size_t r) { return links.key(fmt::format("data/{}", r)); };
  if (!connector.place().empty()) job.set(key_of(mesh.rank), connector.place());
  std::map<std::size_t, std::string> places;
  for (const std::size_t peer : options.peers)
    if (peer < mesh.rank) places[peer] = job.get(key_of(peer), links.start_timeout);
  /// Cancels the wait when a process is lost, while it is in scope.
  struct Watch {
    Watch(JobSession& s, DataConnector& c) : session(s) {
      session.on_loss([&c](const PeerLost&) { c.cancel(); });
    }
    ~Watch() { session.on_loss({}); }
    JobSession& session;
  };
  std::vector<DataConnection> found;
  {
    const Watch watch(links.session, connector);
    found = connector.connect(places, std::chrono::steady_clock::now() + job.timeouts().mesh);
  }
  for (DataConnection& connection : found)
    if (is_plain(links, connection.rank))
      connection.send_key = connection.receive_key = std::nullopt;
  return std::make_shared<TcpMesh>(mesh, std::move(found));
}

}  // namespace detail

JobGroups Tcp::connect(const JobLinks& links) {
  if (const auto memory = detail::open_shared_memory(links)) {
    const auto group = [&](std::size_t channel, int polls) {
      return SharedMemoryGroup(memory, {.rank = links.rank(),
                                        .size = links.size(),
                                        .channel = channel,
                                        .timeout = links.timeout,
                                        .order = links.order,
                                        .spins = polls});
    };
    const SharedMemoryGroup layers = group(0, links.layer_spins),
                            gradients = group(1, links.gradient_spins);
    return {ProcessGroup(layers), ProcessGroup(gradients), [layers, gradients] {
              const ExchangeProgress one = layers.progress(), other = gradients.progress();
              return ExchangeProgress{one.done + other.done,
                                      one.waits_for ? one.waits_for : other.waits_for};
            }};
  }
  const std::shared_ptr<TcpMesh> mesh = detail::connect_tcp(links);
  const auto group = [&](std::size_t channel, int polls) {
    // A round over the connections takes about twenty times as long as a poll of shared memory.
    return ProcessGroup(TcpGroup(
        mesh,
        {.channel = channel, .timeout = links.timeout, .order = links.order, .spins = polls / 20}));
  };
  return {group(0, links.layer_spins), group(1, links.gradient_spins),
          [known = std::weak_ptr(mesh)] {
            const auto its = known.lock();
            return its ? its->progress() : ExchangeProgress{};
          }};
}

}  // namespace lockstep
