/// \file
/// The connections of one process to all others, over Gloo. Invariants: after the constructor each
/// end of each connection has shown that it belongs to the run; the constructor ends soon after its
/// limit, whatever the others do, and at once when the store hears that one of them is lost.
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

/// A mesh could not be formed; nothing of it is left. Another one, with the next number, may
/// succeed: while Gloo connects, it takes whoever comes for the peer.
class GlooMeshError : public CollectiveError {
 public:
  LOCKSTEP_COLD_DECL GlooMeshError(std::size_t rank, std::size_t peer, std::string_view fact);
};

/// What a process needs to know to take its place in a mesh.
struct GlooMeshOptions {
  std::size_t rank = 0, size = 1;
  std::string address = "127.0.0.1";  ///< of this process, as the others reach it
  std::string name = "gloo";  ///< before all keys in the store; one for each group of meshes
  std::uint64_t number = 0;   ///< of this attempt
  std::string run{};          ///< the job; equal in all processes
  std::string key{};          ///< the job's secret, if it has one
  /// At which this process listens, size - 1 of them at a time.
  detail::GlooPorts ports{};
  std::chrono::milliseconds limit = std::chrono::seconds(3);
  /// A connection over which nothing is acknowledged for this long is dead.
  std::chrono::milliseconds silence = std::chrono::seconds(2);
};

namespace detail {

/// Tags of Gloo's messages: a channel, what the message is, and the call it belongs to.
constexpr std::uint64_t gloo_slot(std::size_t channel, std::uint64_t kind, std::uint64_t call = 0) {
  return std::uint64_t{channel} << 56 | kind << 48 | (call & 0xffff'ffff'ffffu);
}
inline constexpr std::size_t gloo_mesh_channel = 255;

/// What Gloo says, without the place in its source: "[pair.cc:589] Read error ...".
LOCKSTEP_COLD_DECL std::string gloo_fact(const std::exception& e);

class GlooPairs {
 public:
  using Clock = std::chrono::steady_clock;
  using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

  /// \throws GlooMeshError, UsageError, and what the store throws.
  LOCKSTEP_COLD_DECL GlooPairs(const GlooMeshOptions& options, GlooStore& store);

  /// Over memory that must outlive the buffer.
  LOCKSTEP_DECL Buffer buffer(const void* p, std::size_t bytes);

  /// By which the messages of a mesh that stands are given to Gloo.
  GlooLoop& loop() { return *loop_; }

  /// For one thread.
  GlooLinks& links() { return links_; }

  /// What was sent still arrives. Nobody may use the connections meanwhile or later.
  LOCKSTEP_COLD_DECL void close();

  /// f(rank) for all others, the next one first, so that not all begin with the same.
  template <class F>
  void for_each_peer(const F& f) const {
    for (std::size_t i = 1; i < options_.size; ++i) f((options_.rank + i) % options_.size);
  }

 private:
  class Interrupter;
  class Waits;
  struct Peer;

  [[noreturn]] LOCKSTEP_COLD_DECL void fail(std::size_t peer, std::string_view fact) const;

  /// Asked here, since Gloo would look names up without a deadline and tell no reason.
  LOCKSTEP_COLD_DECL void check_address() const;
  LOCKSTEP_COLD_DECL void listen();

  /// A connection that listens for its peer, at the first free port from `port` on.
  LOCKSTEP_COLD_DECL void make_pair(GlooPortDevice& device, int rank, std::uint32_t& port);

  /// Where the connection to `rank` has one of its ends.
  LOCKSTEP_COLD_DECL void add_endpoint(const std::vector<char>& address, std::size_t rank,
                                       bool is_mine);
  LOCKSTEP_COLD_DECL std::string key_of(std::size_t rank) const;

  LOCKSTEP_COLD_DECL void interrupt();
  LOCKSTEP_COLD_DECL void check_interrupted(std::size_t peer) const;

  /// All addresses at which a process listens, one for each other rank, in one value.
  LOCKSTEP_COLD_DECL void connect(GlooStore& store);

  LOCKSTEP_COLD_DECL std::chrono::milliseconds time_left() const;

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
