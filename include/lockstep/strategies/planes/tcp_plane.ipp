#pragma once

#include "lockstep/strategies/planes/tcp_plane.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "lockstep/cluster/description/resolved_cluster.hpp"
#include "lockstep/cluster/network/data_address.hpp"
#include "lockstep/cluster/network/data_connector.hpp"
#include "lockstep/cluster/network/file_limit.hpp"
#include "lockstep/cluster/rendezvous/gather_texts.hpp"
#include "lockstep/cluster/rendezvous/rendezvous.hpp"
#include "lockstep/collectives/machine_group.hpp"
#include "lockstep/collectives/machine_layout.hpp"
#include "lockstep/collectives/shared_memory/shared_channel.hpp"
#include "lockstep/collectives/shared_memory/shared_memory_group.hpp"
#include "lockstep/collectives/tcp/tcp_group.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/strategies/job/shared_job.hpp"

namespace lockstep {

namespace detail {

/// Creates or opens the memory of this process' machine, whose processes are `count` ranks from
/// `first` on. All ranks of the job call it. \return why the first rank failed; empty if all have
/// opened theirs.
inline std::string share_memory(const JobLinks& links, std::size_t first, std::size_t count,
                                bool needs_heap, std::shared_ptr<SharedMemory>& memory) {
  Rendezvous& job = links.rendezvous();
  const SharedMemory::Options options{.bytes = SharedMemoryGroup::bytes(count, 2),
                                      .heap = SharedMemoryGroup::heap_bytes(count, 2),
                                      .run{job.run_id().begin(), job.run_id().end()},
                                      .name = links.key("memory"),
                                      .key{job.key().begin(), job.key().end()}};
  const std::string place_key = links.key(format_text("memory/{}", first));
  constexpr std::string_view ok = "ok ";
  const auto report = [&](const auto& f) {
    try {
      return std::string(ok) + f();
    } catch (const std::exception& e) {
      return format_text("rank {}: {}", links.rank(), e.what());
    }
  };
  const auto reserve = [&] {
    if (needs_heap && memory->heap() == nullptr)
      throw Error("shared memory: files or the address space are limited");
    const std::size_t member = links.rank() - first;
    SharedMemoryGroup::reserve(*memory, member, count, 2);
    if (needs_heap && !memory->reserve(memory->heap() + member * SharedChannel::area_of(count), 1))
      throw Error("shared memory: this system cannot reserve it (MADV_POPULATE_WRITE, Linux 5.14)");
  };
  std::string own;
  if (links.rank() == first) {
    own = report([&] {
      memory = SharedMemory::create(options);
      reserve();
      return memory->place();
    });
    job.set(place_key, own);
  } else {
    own = job.get(place_key, links.start_timeout);
    if (own.starts_with(ok))
      own = report([&] {
        memory = SharedMemory::open(std::string_view(own).substr(ok.size()), options);
        reserve();
        return std::string();
      });
  }
  for (const std::string& result : gather_texts(job, links.key("memory"), own, links.start_timeout))
    if (!result.starts_with(ok)) return result;
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
    reason = format_text("it has at most {} workers", SharedMemoryGroup::max_size);
  if (reason.empty()) reason = share_memory(links, 0, links.size(), false, memory);
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
    log(LogLevel::info, format_text("the workers exchange over TCP: {}", reason));
  return nullptr;
}

/// The machines of a job whose workers exchange within them first.
struct JobMachines {
  MachineLayout layout{};
  std::shared_ptr<SharedMemory> memory{};  ///< of this process' machine
};

/// Nullopt if all are to use TCP: all decide alike.
inline std::optional<JobMachines> open_machines(const JobLinks& links) {
  if (links.where.transport == Transport::tcp || links.is_flat) return std::nullopt;
  std::vector<std::string> names;
  for (const WorkerPlace& place : links.places) names.push_back(place.machine);
  std::vector<std::string> distinct = names;
  std::sort(distinct.begin(), distinct.end());
  const auto end = std::unique(distinct.begin(), distinct.end());
  const auto machines = static_cast<std::size_t>(end - distinct.begin());
  if (machines == 1 || machines == links.size()) return std::nullopt;
  const auto layout = MachineLayout::of(names);
  std::string reason;
  JobMachines found;
  if (!layout)
    reason = "the ranks of a machine are not neighbors; start the workers machine by machine";
  else if (!layout->keeps(links.order))
    reason =
        "virtual shards are added in the order of a binary tree, whose parts these machines are "
        "not; use 2, 4, 8, ... machines with equal numbers of workers";
  else if (layout->most() > SharedMemoryGroup::max_size)
    reason = format_text("a machine has more than {} workers", SharedMemoryGroup::max_size);
  if (reason.empty()) {
    found.layout = *layout;
    const std::size_t machine = layout->machine_of(links.rank());
    reason =
        share_memory(links, layout->first(machine), layout->counts[machine], true, found.memory);
  }
  if (reason.empty()) return found;
  if (links.rank() == 0)
    log(LogLevel::info,
        format_text("the workers of a machine exchange over TCP, as machines do: {}", reason));
  return std::nullopt;
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

void wait_for_connected(const JobLinks& links, std::string_view name,
                        const std::vector<std::size_t>& members) {
  Rendezvous& job = links.rendezvous();
  // Each lane of machines counts its own members.
  const auto key_of = [&](std::string_view what) {
    return links.key(format_text("data{}/{}/{}", name, what, members.front()));
  };
  const std::string connected = key_of("connected");
  if (job.add(key_of("count"), 1) == members.size()) job.set(connected, "");
  // Longer than the others try: one that fails names the peer that it misses.
  job.get(connected, links.start_timeout + job.timeouts().mesh);
}

/// Connects this process with `peers`, of `members`, which all call it with the same `name`; it is
/// empty for the groups of the job. Keys of connections that need none are left out.
inline std::vector<DataConnection> connect_peers(const JobLinks& links, std::string_view name,
                                                 std::vector<std::size_t> peers,
                                                 std::size_t per_peer,
                                                 const std::vector<std::size_t>& members) {
  Rendezvous& job = links.rendezvous();
  std::string run(name);
  for (const std::uint8_t byte : job.run_id()) run += format_text("{:02x}", byte);
  DataOptions options{.rank = links.rank(),
                      .peers = std::move(peers),
                      .per_peer = per_peer,
                      .address = job.local_address(),
                      .more_addresses = more_data_addresses(links.where),
                      .stripes = links.where.connections,
                      .ports = links.where.data_ports,
                      .run = links.key(run),
                      .key = Secret(std::string(job.key().begin(), job.key().end())),
                      .silence = job.timeouts().silence,
                      .log = [&job](std::string_view line) { job.log(LogLevel::warning, line); }};
  check_file_limit(options.peers.size() * options.per_peer,
                   format_text("the data connections to {} workers", options.peers.size()));
  DataConnector connector(options);
  const auto key_of = [&](std::size_t r) { return links.key(format_text("data{}/{}", name, r)); };
  if (!connector.place().empty()) job.set(key_of(options.rank), connector.place());
  std::map<std::size_t, std::string> places;
  for (const std::size_t peer : options.peers)
    if (peer < options.rank) places[peer] = job.get(key_of(peer), links.start_timeout);
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
    found = connector.connect(places, std::chrono::steady_clock::now() + job.timeouts().mesh,
                              [&] { wait_for_connected(links, name, members); });
  }
  for (DataConnection& connection : found)
    if (is_plain(links, connection.rank))
      connection.send_key = connection.receive_key = std::nullopt;
  return found;
}

std::shared_ptr<TcpMesh> connect_tcp(const JobLinks& links,
                                     const std::vector<std::size_t>& members) {
  const auto index_of = [&](std::size_t rank) {
    return static_cast<std::size_t>(std::lower_bound(members.begin(), members.end(), rank) -
                                    members.begin());
  };
  TcpMesh::Options mesh{.rank = index_of(links.rank()),
                        .size = members.size(),
                        .silence = links.rendezvous().timeouts().silence,
                        .names = members};
  if (links.is_flat) mesh.topology = Topology::direct;
  std::vector<std::size_t> peers = peers_of(mesh.rank, mesh.size, mesh.topology);
  for (std::size_t& peer : peers) peer = members[peer];
  std::vector<DataConnection> found =
      connect_peers(links, "", std::move(peers), mesh.channels * links.where.connections, members);
  for (DataConnection& connection : found) connection.rank = index_of(connection.rank);
  return std::make_shared<TcpMesh>(mesh, std::move(found));
}

}  // namespace detail

JobGroups Tcp::connect(const JobLinks& links) {
  const auto both = [&](const auto& group) {
    return JobGroups{group(links.layers()), group(links.gradients())};
  };
  if (const auto memory = detail::open_shared_memory(links))
    return both([&](const GroupOptions& options) {
      return SharedMemoryGroup(memory, links.rank(), links.size(), options);
    });
  detail::check_wire(links);
  if (const auto machines = detail::open_machines(links)) {
    const MachineLayout& layout = machines->layout;
    const std::size_t lane = links.rank() - layout.first(layout.machine_of(links.rank()));
    std::shared_ptr<TcpMesh> mesh;
    if (lane < layout.lanes()) mesh = detail::connect_tcp(links, layout.lane(lane));
    return both([&](const GroupOptions& options) {
      return MachineGroup(machines->memory, mesh, layout, links.rank(), options);
    });
  }
  std::vector<std::size_t> all(links.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  const std::shared_ptr<TcpMesh> mesh = detail::connect_tcp(links, all);
  return both([&](const GroupOptions& options) { return TcpGroup(mesh, options); });
}

std::vector<ProcessGroup> Tcp::connect_pairs(const JobLinks& links,
                                             const std::vector<std::size_t>& peers) {
  std::vector<std::size_t> all(links.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  detail::check_wire(links);
  std::map<std::size_t, std::vector<DataConnection>> by_rank;
  for (DataConnection& connection :
       detail::connect_peers(links, " pairs", peers, links.where.connections, all))
    by_rank[connection.rank].push_back(std::move(connection));
  std::vector<ProcessGroup> pairs;
  for (const std::size_t peer : peers) {
    const std::size_t lower = std::min(peer, links.rank());
    TcpMesh::Options pair{.rank = links.rank() == lower ? std::size_t{0} : std::size_t{1},
                          .size = 2,
                          .channels = 1,
                          .topology = detail::Topology::direct,
                          .silence = links.rendezvous().timeouts().silence,
                          .names = {lower, std::max(peer, links.rank())}};
    for (DataConnection& connection : by_rank[peer]) connection.rank = 1 - pair.rank;
    pairs.emplace_back(TcpGroup(std::make_shared<TcpMesh>(pair, std::move(by_rank[peer])),
                                GroupOptions{.timeout = links.timeout}));
  }
  return pairs;
}

}  // namespace lockstep
