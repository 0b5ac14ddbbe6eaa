/// \file
/// Rank 0's role in the rendezvous: admits the members, keeps the store, monitors every rank, and
/// decides which rank is lost. Invariants: each rank has at most one member; the first loss is
/// broadcast to all members, the lost one included, so that every process names the same rank; a
/// member that has left in an orderly way is not lost.
#pragma once

#include <asio/io_context.hpp>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/cluster/network/clock.hpp"
#include "lockstep/cluster/network/connection.hpp"
#include "lockstep/cluster/network/listener.hpp"
#include "lockstep/cluster/network/lookup.hpp"
#include "lockstep/cluster/network/timer.hpp"
#include "lockstep/cluster/rendezvous/control.hpp"
#include "lockstep/cluster/rendezvous/member_registry.hpp"
#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/cluster/rendezvous/stall.hpp"
#include "lockstep/cluster/rendezvous/store.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/quote.hpp"

namespace lockstep::detail {

/// The chief's state machine. All of it runs on the control thread; nothing here takes a lock.
///
///     begin()            listen on the chief's address, retry while DNS has none
///       |
///     JOINING  --Hello--> admit: same job id, same signature, same address family, free rank?
///       |                   no:  Refuse (ends that worker, not the job) or RetryLater
///       |                   yes: MissingRanks to it every heartbeat until all ranks are here
///       |--deadline-----> declare_lost(first missing rank)
///     start()            assign the free ranks, send Peers and Start to every member
///       |
///     RUNNING  --silence, closed connection, failure report, stall, accusations--> verdict
///       |--all ranks left--> AllLeft
///     shut_down()        Leave to every member, then wait until their connections close
class Chief final : public Role {
 public:
  /// `setup` must outlive the chief. `psk` is null for a job without a secret.
  LOCKSTEP_COLD_DECL Chief(asio::io_context& io, Control& control, const ProgressBoard& board,
                           const JoinSetup& setup, PskContext* psk);
  Chief(const Chief&) = delete;  // handlers hold its address
  Chief& operator=(const Chief&) = delete;

  /// Starts listening and the heartbeat timer. A job of one rank starts at once.
  LOCKSTEP_COLD_DECL void begin() override;

  /// A store request of this process.
  void submit(Request request) override { handle(0, std::move(request)); }

  /// A failed exchange of this process.
  void accuse(Accuse accusation) override { add_accusation(0, accusation); }

  /// This process cannot continue: rank 0 itself becomes the verdict.
  void fail(const std::string& what) override { declare_lost(0, "failed: " + printable(what)); }

  /// Marks rank 0 as done. Ranks that still wait for it get PeerLost.
  LOCKSTEP_COLD_DECL void leave() override;
  /// Sends Leave to all members, flushes and half-closes their connections.
  LOCKSTEP_COLD_DECL void shut_down() override;
  /// Closes every socket without a message.
  LOCKSTEP_COLD_DECL void abort() override;

 private:
  using Member = MemberEntry;
  /// A failed exchange, as one rank reported it.
  struct Accusation {
    std::size_t accuser = 0;
    Accuse of{};
  };

  void log(LogLevel level, const std::string& line) { setup_.log(level, line); }

  /// For messages: "rank 1 (worker:1, 10.0.0.2:12345)".
  std::string name(std::size_t rank) const { return members_.name(rank); }

  // --- the join ---

  /// Listens on the chief's address. Retries until the join deadline, because DNS may publish a
  /// host name late.
  LOCKSTEP_COLD_DECL void listen();

  /// Ends the join with `sentence` for this process and for every worker that is connected.
  LOCKSTEP_COLD_DECL void abort_join(const std::string& sentence, bool is_listen_fault = false);
  /// Checks a worker's first message and gives the worker its rank, refuses it, or asks it to
  /// retry.
  LOCKSTEP_COLD_DECL void admit(const std::shared_ptr<Connection>& link, const Hello& hello);

  /// Asks a worker to reconnect over the job's address family. Data connections use the family of
  /// the control connections, so all ranks must share one.
  LOCKSTEP_COLD_DECL void redirect_address_family(const std::shared_ptr<Connection>& link,
                                                  const Hello& hello);

  /// Why this worker could not exchange data with the others; nullopt if it can.
  LOCKSTEP_COLD_DECL std::optional<std::string> data_fault(const std::shared_ptr<Connection>& link,
                                                           const Hello& hello,
                                                           const std::string& peer) const;

  /// Queues a worker without a rank until the free ranks are known.
  LOCKSTEP_COLD_DECL void queue_unranked(const std::shared_ptr<Connection>& link);
  /// Makes `link` the connection of `rank`.
  LOCKSTEP_COLD_DECL void assign_rank(const std::shared_ptr<Connection>& link, std::size_t rank);
  /// Checks the join deadline, logs the missing ranks from time to time, and sends them to all.
  LOCKSTEP_COLD_DECL void check_join(Clock::time_point now);
  /// All ranks are here: fixes ranks, data addresses, run id and key, and sends them to all.
  LOCKSTEP_COLD_DECL void start();

  /// The data address of each rank. Aborts the join and returns nullopt if some ranks cannot reach
  /// each other.
  LOCKSTEP_COLD_DECL std::optional<std::vector<std::string>> decide_data_addresses();

  // --- the members ---

  /// Handles a frame of an admitted member. A corrupt or unexpected one disconnects it.
  LOCKSTEP_COLD_DECL void on_frame(std::size_t rank, FrameType type, std::string_view body);
  /// Closes the connection of `rank` and handles the loss.
  LOCKSTEP_COLD_DECL void disconnect(std::size_t rank, const std::string& how);

  /// The connection of `rank` has closed. Before the start the rank may reconnect; after the start
  /// it is lost unless it has left.
  LOCKSTEP_COLD_DECL void on_disconnect(std::size_t rank, const std::string& how);
  /// Makes `rank` the verdict and broadcasts it, unless a verdict exists.
  LOCKSTEP_COLD_DECL void declare_lost(std::size_t rank, const std::string& how);
  /// Delivers a reply of the store to the rank that asked.
  LOCKSTEP_COLD_DECL void answer(std::size_t rank, Reply reply);
  /// Passes a request to the store.
  LOCKSTEP_COLD_DECL void handle(std::size_t rank, Request request);
  /// Arms the timer for the store's next deadline.
  LOCKSTEP_COLD_DECL void schedule_store_expiry();

  /// A rank that has left counts as lost once another rank waits for it at a barrier.
  LOCKSTEP_COLD_DECL void declare_lost_if_awaited(std::size_t rank);
  /// "left after step 40", or "left" if the rank never trained.
  LOCKSTEP_COLD_DECL std::string how_left(std::size_t rank) const;
  /// Whether exchanges with the accused fail because it has left; a link that is dead or changes
  /// data fails for other reasons.
  LOCKSTEP_COLD_DECL bool is_explained_by_leave(const Accuse& accuse) const;

  /// Records an accusation; the first one arms the timer of `judge`. A rank that lost its own
  /// network accuses all others and is accused by all of them, so one report proves nothing: the
  /// chief collects reports for half the verdict timeout plus the longest round trip, then votes.
  LOCKSTEP_COLD_DECL void add_accusation(std::size_t accuser, const Accuse& of);
  /// Runs `judge` after `time`, unless a verdict exists by then.
  LOCKSTEP_COLD_DECL void judge_after(Clock::duration time);
  /// The rank with the most distinct accusers is lost. In a tie it is the higher of two that accuse
  /// each other, else the one that was accused first. For a failed link between two ranks, waits
  /// until both have sent a heartbeat or one is lost.
  LOCKSTEP_COLD_DECL void judge();

  // --- time ---

  /// Runs every heartbeat interval: timeouts, heartbeats, stall detection.
  LOCKSTEP_COLD_DECL void tick();
  /// Sends the chief's progress and the round-trip time stamps.
  LOCKSTEP_COLD_DECL void send_heartbeat(Member& member);
  /// Warns about, and after the limit loses, a rank that is alive but makes no progress.
  LOCKSTEP_COLD_DECL void check_stall(Clock::time_point now);

  // --- the end ---

  /// Sends AllLeft once every rank has left.
  LOCKSTEP_COLD_DECL void notify_all_left();
  /// Reports the shutdown as done once every connection is closed, except that of a lost rank,
  /// which may never close.
  LOCKSTEP_COLD_DECL void check_shut_down();

  Control& control_;
  const ProgressBoard& board_;
  const JoinSetup& setup_;
  Listener listener_;
  Store store_;
  bool is_secured_;
  MemberRegistry members_;
  RepeatedLookup lookup_;
  std::string listen_fault_;        // why listening failed; empty once it works
  std::string refusal_;             // of a process without a rank of this job; for the deadline
  tcp address_family_ = tcp::v4();  // of all connections of the job
  Timer ticker_, store_timer_, join_timer_, judge_timer_;
  WakeupMonitor wakeups_{Clock::now()};
  StallTimer stall_timer_;
  Clock::time_point join_started_at_, next_log_, next_stall_log_;
  std::vector<Accusation> accusations_;
  Clock::time_point accused_at_;  // the first accusation
  bool started_ = false, shutting_down_ = false;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/chief.ipp"
#endif
