/// \file
/// One channel of a TCP mesh: the connections of one group. Invariants: the calling thread moves
/// all data; no wait exceeds the timeout without progress, which counts only while the process runs;
/// no data of an operation are used before the peer that sent them has shown that it calls the same
/// one; when an operation has ended, nothing accesses the caller's memory any more.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "lockstep/collectives/algorithms/channel.hpp"
#include "lockstep/collectives/algorithms/collective_call.hpp"
#include "lockstep/collectives/algorithms/group_options.hpp"
#include "lockstep/collectives/algorithms/shutdown.hpp"
#include "lockstep/collectives/tcp/tcp_link.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/exchange_progress.hpp"

namespace lockstep {
class TcpMesh;
}

namespace lockstep::detail {

/// A Channel over TCP. A loop moves data on all connections; when none can go on, it polls for a
/// while if `spins` allow it, then sleeps in poll(2) until a connection is ready, the mesh shuts
/// down, or 100 ms have passed, after which it looks for dead connections.
class TcpChannel {
 public:
  /// `links[i]` are the connections to `peers[i]`; transfers of many bytes are spread over them.
  LOCKSTEP_COLD_DECL TcpChannel(TcpMesh& mesh, std::vector<std::size_t> peers,
                                std::vector<std::vector<TcpLink>> links);
  TcpChannel(const TcpChannel&) = delete;
  TcpChannel& operator=(const TcpChannel&) = delete;

  LOCKSTEP_DECL std::size_t rank() const;
  LOCKSTEP_DECL std::size_t size() const;
  const std::vector<std::size_t>& peers() const { return peers_; }
  /// From any thread; `waits_for` is a rank of the job.
  LOCKSTEP_COLD_DECL ExchangeProgress progress() const;

  /// Claims the channel for a group. `ended` returns why the operations ended by other means than
  /// this mesh. \throws UsageError if it has a group.
  LOCKSTEP_COLD_DECL void claim(const GroupOptions& options,
                                std::function<std::optional<Shutdown>()> ended = {});

  LOCKSTEP_DECL void send(std::size_t peer, const std::byte* p, std::size_t n);
  LOCKSTEP_DECL void receive(std::size_t peer, std::byte* p, std::size_t n);
  LOCKSTEP_DECL void complete();
  std::byte* reserve(std::size_t bytes) { return memory_.reserve(bytes); }

  /// Runs one operation. Any exception shuts the mesh down.
  template <class Body>
  void run(const CollectiveCall& call, const Body& body) {
    std::unique_lock lock(io_);
    try {
      begin(call);
      body();
      complete();
    } catch (...) {
      end_by_error();
      throw;
    }
    lock.unlock();
    end();
  }

  /// Sends the peers the cause of the mesh's shutdown, once, unless an operation runs, which does it
  /// when it ends. Does not wait.
  LOCKSTEP_COLD_DECL void notify_if_idle();

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Cause = Shutdown::Cause;
  struct Link {
    std::size_t rank;
    TcpLink tcp;
    bool first;             ///< of its peer: the one that carries calls and notices
    bool is_ahead = false;  ///< has input of the next operation, or has ended: no notice to await
    bool is_notified = false;
  };

  /// A wait is interrupted this often to look for dead connections.
  static constexpr std::chrono::milliseconds tick{100};
  /// Polls of memory that take as long as a round over the connections.
  static constexpr int polls_per_round = 20;
  /// For the notices of a failed operation, whose records may be half sent.
  static constexpr std::chrono::milliseconds notice_timeout{500};
  /// Bytes of a transfer from which on it is spread over several connections, for each of them.
  static constexpr std::size_t least_stripe = std::size_t{64} << 10;

  LOCKSTEP_DECL void begin(const CollectiveCall& call);
  LOCKSTEP_COLD_DECL void end_by_error();
  LOCKSTEP_DECL void end();
  /// Sends notices to all peers; waits for connections that do not take them until `deadline`.
  LOCKSTEP_COLD_DECL void notify(TimePoint deadline);

  template <class F>
  void for_each_stripe(std::size_t peer, std::size_t n, const F& f);
  /// Whether data of this connection are expected, and the peer's call has been compared.
  LOCKSTEP_DECL bool may_read(const Link& link) const;
  LOCKSTEP_DECL void check_call(Link& link);
  /// Sleeps until something may have changed. \return the time that counts for the timeout.
  LOCKSTEP_DECL std::chrono::nanoseconds wait(std::chrono::nanoseconds most);
  LOCKSTEP_COLD_DECL void look_for_notices();
  LOCKSTEP_COLD_DECL void find_dead(bool ran);
  LOCKSTEP_COLD_DECL void handle(Link& link, TcpLink::Event event);
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_shutdown();
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_lost(Link& link);
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_timeout();
  /// `peer` is a member of the mesh; errors name ranks of the job.
  LOCKSTEP_COLD_DECL Shutdown cause(Cause why, std::size_t peer) const;
  LOCKSTEP_COLD_DECL std::size_t here() const;
  void count_progress() { done_.fetch_add(1, std::memory_order_relaxed); }

  TcpMesh& mesh_;
  std::vector<std::size_t> peers_;
  std::vector<Link> links_;              // by peer
  std::vector<std::size_t> first_link_;  // by rank; of peers only
  std::size_t links_per_peer_ = 1;
  std::vector<pollfd> polls_;
  std::chrono::nanoseconds timeout_{};
  int spins_ = 0;
  std::function<std::optional<Shutdown>()> ended_;
  bool claimed_ = false, notified_ = false, threw_mismatch_ = false;
  CollectiveCall call_{};
  AlignedBuffer memory_;
  std::mutex io_;  // held during an operation, and by `notify`
  TimePoint next_look_{};
  static constexpr std::size_t nobody = static_cast<std::size_t>(-1);
  std::atomic<std::size_t> waits_for_{nobody};
  std::atomic<std::uint64_t> done_{0}, moved_{0};
};
static_assert(Channel<TcpChannel>);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/tcp/tcp_channel.ipp"
#endif
