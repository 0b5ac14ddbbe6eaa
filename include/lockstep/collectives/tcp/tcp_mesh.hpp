/// \file
/// One process' TCP connections to its peers, and how their operations end. Invariants: the first
/// cause of a shutdown is the one that all groups and all peers name; a process that ends its
/// operations notifies its peers why before it closes the connections; there are no threads here.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/collectives/algorithms/shutdown.hpp"
#include "lockstep/collectives/algorithms/topology.hpp"
#include "lockstep/collectives/tcp/tcp_link.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

namespace detail {
class TcpChannel;
}

/// The connections of this process, shared by the groups of a job; each group has its own channel,
/// that is, connections that no other group uses. The thread that calls an operation moves its data
/// itself.
///
///     failing process: shut_down(cause) ── notice ──> peer: shut_down(the same cause)
///                      end of its side  ── FIN ─────> peer without a notice: shut_down(lost)
///
/// \code
///   auto mesh = std::make_shared<lockstep::TcpMesh>(
///       lockstep::TcpMesh::Options{.rank = 1, .size = 4}, std::move(connections));
///   lockstep::TcpGroup gradients(mesh, {.channel = 0}), layers(mesh, {.channel = 1});
/// \endcode
class TcpMesh {
 public:
  using Cause = detail::Shutdown::Cause;

  /// Options, equal in all processes except for the rank.
  struct Options {
    std::size_t rank = 0, size = 1;
    std::size_t channels = 2;
    detail::Topology topology = detail::topology_of(size);
    /// A connection over which nothing is acknowledged for this long is dead.
    std::chrono::milliseconds silence = std::chrono::seconds(2);
    /// The members' ranks in the job, if the mesh connects only some of its processes.
    std::vector<std::size_t> names{};
  };

  /// Every peer of the topology has the same number of connections, a multiple of `channels`.
  /// \throws UsageError if they are others.
  LOCKSTEP_COLD_DECL TcpMesh(const Options& options, std::vector<DataConnection> connections);
  TcpMesh(const TcpMesh&) = delete;
  TcpMesh& operator=(const TcpMesh&) = delete;
  LOCKSTEP_COLD_DECL ~TcpMesh();

  std::size_t rank() const { return options_.rank; }
  std::size_t size() const { return options_.size; }
  const Options& options() const { return options_; }
  /// A member's rank in the job, by which errors name it.
  std::size_t name(std::size_t member) const {
    return options_.names.empty() ? member : options_.names[member];
  }

  /// Ends all operations in all processes. Callable from any thread, any number of times.
  LOCKSTEP_COLD_DECL void abort();
  /// The same because `rank` of the job was lost.
  LOCKSTEP_COLD_DECL void lose(std::size_t rank);
  /// The same because of `why`, which all processes report unless they know an earlier cause.
  LOCKSTEP_COLD_DECL void end(const detail::Shutdown& why);
  bool is_down() const { return down_.load(); }
  /// Why the operations were ended.
  LOCKSTEP_COLD_DECL detail::Shutdown shutdown() const;

 private:
  friend class detail::TcpChannel;
  friend class MachineGroup;
  friend class TcpGroup;

  /// Sets the cause, unless there is one, and wakes all waits of this process. The peers hear of it
  /// from `notify`.
  LOCKSTEP_COLD_DECL void shut_down(const detail::Shutdown& why);
  /// Sends the notices of all channels that no operation uses; an operation sends its own.
  LOCKSTEP_COLD_DECL void notify();
  /// Readable from a shutdown on.
  int wakeup() const { return wakeup_.number(); }

  Options options_;
  FileDescriptor wakeup_;
  mutable std::mutex mutex_;
  detail::Shutdown shutdown_{};
  std::atomic<bool> down_{false};
  std::vector<std::unique_ptr<detail::TcpChannel>> channels_;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/tcp/tcp_mesh.ipp"
#endif
