/// \file
/// The role of every rank but 0: connects to the chief. Invariants: until the job starts, a worker
/// retries until its deadline whatever answers at the chief's address, unless the chief itself
/// refuses it, or had admitted it and nothing listens at that address any more; after the start, a
/// broken or silent connection means that the chief is lost, unless the chief announced its leave.
#pragma once

#include <asio/io_context.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/network/clock.hpp"
#include "lockstep/cluster/network/connection.hpp"
#include "lockstep/cluster/network/lookup.hpp"
#include "lockstep/cluster/network/timer.hpp"
#include "lockstep/cluster/rendezvous/control.hpp"
#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// A worker's state machine. All of it runs on the control thread.
///
///     attempt: resolve -> connect -> TLS handshake or greeting -> Hello
///        ^                                                        |
///        |--failure, RetryLater, stranger (pause 5 to 200 ms)-----|
///                                                                 |--Refuse--> ClusterError
///     admitted_:  MissingRanks every heartbeat                    |
///        |--connection closed--> attempt; refused for restart_grace: PeerLost of the chief
///        |--Peers, Start--> started_: heartbeats, requests, replies
///        |--deadline--> PeerLost of the chief or of the first missing rank
///     started_ --LostPeer--> verdict;  --AllLeft, Leave--> chief_left_
class Worker final : public Role {
 public:
  /// `setup` must outlive the worker. `psk` is null for a job without a secret.
  LOCKSTEP_COLD_DECL Worker(asio::io_context& io, Control& control, const ProgressBoard& board,
                            const JoinSetup& setup, PskContext* psk);
  Worker(const Worker&) = delete;  // handlers hold its address
  Worker& operator=(const Worker&) = delete;

  /// Starts the first attempt and the heartbeat timer.
  LOCKSTEP_COLD_DECL void begin() override;
  /// Sends a store request to the chief.
  LOCKSTEP_COLD_DECL void submit(Request request) override;
  /// Reports a failed exchange to the chief, which decides.
  LOCKSTEP_COLD_DECL void accuse(Accuse accusation) override;
  /// Reports to the chief that this process cannot continue.
  LOCKSTEP_COLD_DECL void fail(const std::string& what) override;
  /// Announces that this process has finished its work. Idempotent.
  LOCKSTEP_COLD_DECL void leave() override;
  /// Sends Leave if that has not happened, flushes, and half-closes the connection.
  LOCKSTEP_COLD_DECL void shut_down() override;
  /// Closes the socket without a message.
  LOCKSTEP_COLD_DECL void abort() override;

 private:
  static constexpr std::size_t max_reason_bytes = 1024;

  /// True while a started job can send to its chief.
  bool connected() const { return started_ && link_ && link_->open(); }

  /// Sends a last heartbeat, for the final step number, then Leave.
  LOCKSTEP_COLD_DECL void send_leave();

  // --- the join ---

  /// Schedules the next attempt.
  LOCKSTEP_COLD_DECL void retry_after(milliseconds pause);

  /// Tries the chief's addresses in turn, then starts over after a pause that doubles.
  LOCKSTEP_COLD_DECL void attempt();

  /// The addresses of the job's family. While that is unknown all of them, IPv4 first. Then the same
  /// with the job's other ports.
  LOCKSTEP_COLD_DECL std::vector<tcp::endpoint> preferred_endpoints(
      const std::vector<tcp::endpoint>& endpoints) const;
  /// Ends the join: on this machine the chief's host has no address of the job's family.
  LOCKSTEP_COLD_DECL void refuse_address_family(const LookupResult& found);
  /// Opens a socket and connects.
  LOCKSTEP_COLD_DECL void connect(const tcp::endpoint& endpoint);
  /// The TCP connection is established: sends the greeting, or starts the TLS handshake.
  LOCKSTEP_COLD_DECL void connected_to_chief();
  /// Ends the join if the chief has another secret. Retries if the peer is not a chief at all.
  LOCKSTEP_COLD_DECL void handshake_failed(const asio::error_code& error);

  /// Another program holds the chief's port. Logs that once and retries: the chief may still start.
  LOCKSTEP_COLD_DECL void retry_untrusted(const std::string& what);
  /// Sends Hello and starts to read frames.
  LOCKSTEP_COLD_DECL void send_hello();

  /// Closes this attempt's connection and schedules the next one.
  LOCKSTEP_COLD_DECL void attempt_failed(const std::string& why);
  /// Nothing listens at the chief's address. A chief that had admitted this worker has then been
  /// killed: after `restart_grace` it is lost.
  LOCKSTEP_COLD_DECL void connection_refused();
  /// The connection closed before the start: remembers how, if the chief had admitted this worker,
  /// and reconnects.
  LOCKSTEP_COLD_DECL void admission_ended(const std::string& how);
  /// A short sentence for the errors that users meet most.
  LOCKSTEP_COLD_DECL static std::string connect_error(const asio::error_code& error);
  /// Ends the join with ClusterError: the chief refused this process.
  LOCKSTEP_COLD_DECL void refuse_join(const std::string& sentence);
  /// Checks the join deadline, and logs the missing ranks from time to time.
  LOCKSTEP_COLD_DECL void check_join(Clock::time_point now);

  /// Ends the join with Error: the cause is local, so no rank is named.
  LOCKSTEP_COLD_DECL void fail_locally(const std::string& sentence);
  /// A rank's address from the cluster description; empty if unknown.
  LOCKSTEP_COLD_DECL std::string address_of(std::size_t rank) const;

  // --- the chief ---

  /// Handles a frame of the chief. A corrupt one closes the connection.
  LOCKSTEP_COLD_DECL void on_frame(FrameType type, std::string_view body);
  /// All ranks are here. Ends the wait of the constructor.
  LOCKSTEP_COLD_DECL void on_start(const Start& start);
  /// The connection has closed: a failed attempt before the start, a lost chief after it.
  LOCKSTEP_COLD_DECL void on_disconnect(const std::string& how);

  /// Makes the chief the verdict of this process.
  void declare_chief_lost(const std::string& how) {
    declare_lost({0, address_of(0), how, last_step()});
  }

  /// The last step that this process finished.
  LOCKSTEP_COLD_DECL std::optional<std::uint64_t> last_step() const;
  /// Sets the verdict, unless one exists, and notifies the program.
  LOCKSTEP_COLD_DECL void declare_lost(LostPeer loss);

  // --- time ---

  /// Sends progress, exchange counters and the round-trip time stamps.
  LOCKSTEP_COLD_DECL void send_heartbeat();
  /// Runs every heartbeat interval.
  LOCKSTEP_COLD_DECL void tick();

  /// The pause between attempts. It starts short because workers often start just before their
  /// chief.
  static constexpr milliseconds min_pause{5}, max_pause{200};
  /// How long after its own deadline a worker waits for the chief's verdict.
  static constexpr milliseconds verdict_grace{1000};
  /// A chief that restarts within this time of refused connections finds its workers waiting. All
  /// workers name a killed one within a second, the pause between two attempts included.
  static constexpr milliseconds restart_grace{750}, restart_pause{50};

  asio::io_context& io_;
  Control& control_;
  const ProgressBoard& board_;
  const JoinSetup& setup_;
  PskContext* psk_;
  HostPort chief_;
  RepeatedLookup lookup_;
  Timer ticker_, retry_;
  std::shared_ptr<Connection> link_;
  RetryLater::AddressFamily address_family_ = RetryLater::AddressFamily::any;  // the job's
  std::vector<tcp::endpoint> endpoints_;
  std::size_t next_endpoint_ = 0;
  milliseconds pause_ = min_pause;
  std::string last_failure_ = "no attempt has finished yet";
  std::string last_distrust_;  // logged once
  std::string other_job_;      // how the chief of another job refused this process
  OtherSecret other_secret_;
  std::string chief_end_;  // how the connection of an admission ended; empty: none has ended
  std::optional<Clock::time_point> refused_since_;  // by every address, since that end
  MissingRanks missing_;
  Membership membership_;
  WakeupMonitor wakeups_{Clock::now()};
  StallTimer stall_timer_;
  RoundTrip round_trip_;
  Clock::time_point join_started_at_, next_log_, last_heard_;
  /// When an attempt to join began, connected, or ended its handshake. Giving up an attempt that the
  /// chief has accepted would end the job.
  Clock::time_point attempt_moved_at_;
  bool admitted_ = false, started_ = false, stopped_ = false, out_of_files_ = false;
  bool chief_left_ = false, leave_sent_ = false, shutting_down_ = false;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/worker.ipp"
#endif
