/// \file
/// The connections of one process to all others, over Gloo. Invariants: after the constructor both
/// ends of each connection have proved that they belong to the run; the constructor returns or
/// throws soon after its limit, whatever its peers do, and immediately when the store reports the
/// loss of a process.
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lockstep/collectives/gloo_links.hpp"
#include "lockstep/collectives/gloo_loop.hpp"
#include "lockstep/collectives/gloo_ports.hpp"
#include "lockstep/collectives/gloo_proof.hpp"
#include "lockstep/collectives/gloo_store.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

/// A mesh could not be formed; all its connections are closed. An attempt with the next number may
/// succeed: while it connects, Gloo accepts any process as the peer, even a stranger.
class GlooMeshError : public CollectiveError {
 public:
  LOCKSTEP_COLD_DECL GlooMeshError(std::size_t rank, std::size_t peer, std::string_view fact);
};

/// The options of a process that joins a mesh.
struct GlooMeshOptions {
  std::size_t rank = 0, size = 1;
  std::string address = "127.0.0.1";  ///< of this process, as its peers reach it
  std::string name = "gloo";  ///< prefix of all keys in the store; unique per group of meshes
  std::uint64_t number = 0;   ///< of this attempt
  std::string run{};          ///< identifies the job; equal in all processes
  std::string key{};          ///< the job's secret; empty if it has none
  /// Ports on which this process listens, size - 1 of them at a time.
  detail::GlooPorts ports{};
  /// For connecting and authenticating.
  std::chrono::milliseconds limit = std::chrono::seconds(3);
  /// A connection over which nothing is acknowledged for this long is dead.
  std::chrono::milliseconds silence = std::chrono::seconds(2);
};

namespace detail {

/// The tag of a Gloo message: 8 bits of channel, 8 of message kind, 48 of the call's hash.
constexpr std::uint64_t gloo_slot(std::size_t channel, std::uint64_t kind, std::uint64_t call = 0) {
  return std::uint64_t{channel} << 56 | kind << 48 | (call & 0xffff'ffff'ffffu);
}
inline constexpr std::size_t gloo_mesh_channel = 255;  ///< of the mesh's own messages

/// Gloo's error text without its source location: "[pair.cc:589] Read error ..." -> "Read error".
LOCKSTEP_COLD_DECL std::string gloo_fact(const std::exception& e);

/// One Gloo pair (a TCP connection) per peer. The constructor goes through these steps:
///
///     listen ── addresses to the store ──> connect, rank by rank ──> authenticate ──> connected
///        └────────── limit, or the loss of a process (Interrupter) ──────> GlooMeshError
class GlooPairs {
 public:
  using Clock = std::chrono::steady_clock;
  using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

  /// \throws GlooMeshError, UsageError, and what the store throws.
  LOCKSTEP_COLD_DECL GlooPairs(const GlooMeshOptions& options, GlooStore& store);

  /// A Gloo buffer over p[0..bytes), which must outlive it.
  LOCKSTEP_DECL Buffer buffer(const void* p, std::size_t bytes);

  /// The queue for all messages once the constructor has returned.
  GlooLoop& loop() { return *loop_; }

  /// To be used by one thread only.
  GlooLinks& links() { return links_; }

  /// Closes all connections; data that was sent still arrives. No thread may use the connections
  /// during or after this call.
  LOCKSTEP_COLD_DECL void close();

  /// Calls f(rank) for all peers, starting with the next rank so that not all processes start with
  /// the same peer.
  template <class F>
  void for_each_peer(const F& f) const {
    for (std::size_t i = 1; i < options_.size; ++i) f((options_.rank + i) % options_.size);
  }

 private:
  class Interrupter;
  class Waits;
  struct Peer;

  [[noreturn]] LOCKSTEP_COLD_DECL void fail(std::size_t peer, std::string_view fact) const;

  /// Accepts numeric addresses of this machine only: Gloo would resolve a name without a deadline
  /// and report no reason for a failure. \throws UsageError.
  LOCKSTEP_COLD_DECL void check_address() const;
  LOCKSTEP_COLD_DECL void listen();

  /// Creates a connection that listens for its peer on the first free port from `port` on.
  LOCKSTEP_COLD_DECL void make_pair(GlooPortDevice& device, int rank, std::uint32_t& port);

  /// Notes one end of the connection to `rank`, to find its socket later.
  LOCKSTEP_COLD_DECL void add_endpoint(const std::vector<char>& address, std::size_t rank,
                                       bool is_mine);
  LOCKSTEP_COLD_DECL std::string key_of(std::size_t rank) const;

  /// Closes all connections and aborts all waits, from the Interrupter's thread.
  LOCKSTEP_COLD_DECL void interrupt();
  LOCKSTEP_COLD_DECL void check_interrupted(std::size_t peer) const;

  /// Publishes the addresses on which this process listens (one per peer, in one value), and
  /// connects to those of its peers.
  LOCKSTEP_COLD_DECL void connect(GlooStore& store);

  /// The time until deadline_, at least 1 ms.
  LOCKSTEP_COLD_DECL std::chrono::milliseconds time_left() const;

  /// Exchanges hellos and proofs with all peers; see gloo_proof.hpp.
  LOCKSTEP_COLD_DECL void authenticate();

  GlooMeshOptions options_;
  Clock::time_point deadline_;
  std::shared_ptr<gloo::transport::Context> context_;
  std::optional<GlooLoop> loop_;
  std::vector<sockaddr_storage> addresses_;
  std::atomic<bool> interrupted_{false};
  std::mutex waits_mutex_;
  std::vector<gloo::transport::UnboundBuffer*> waits_;
  std::vector<GlooLinks::Endpoint> endpoints_;
  GlooLinks links_;
};

}  // namespace detail
}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/gloo_pairs.ipp"
#endif
