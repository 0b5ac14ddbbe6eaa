/// \file
/// Rank 0's side of the rendezvous: gathers the members, keeps the store, watches all, and decides
/// who is lost. Invariants: a rank has one member at most; the first loss is told to all members,
/// the lost one too, so that all name the same; a member that has said goodbye is not lost.
#pragma once

#include <asio/io_context.hpp>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/cluster/rendezvous/clock.hpp"
#include "lockstep/cluster/rendezvous/connection.hpp"
#include "lockstep/cluster/rendezvous/control.hpp"
#include "lockstep/cluster/rendezvous/listener.hpp"
#include "lockstep/cluster/rendezvous/lookup.hpp"
#include "lockstep/cluster/rendezvous/member_registry.hpp"
#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/cluster/rendezvous/stall.hpp"
#include "lockstep/cluster/rendezvous/store.hpp"
#include "lockstep/cluster/rendezvous/timer.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

class Chief final : public Role {
 public:
  LOCKSTEP_COLD_DECL Chief(asio::io_context& io, Control& control, const ProgressBoard& board,
                           const JoinSetup& setup, PskContext* psk);
  Chief(const Chief&) = delete;  // its parts' handlers keep its address
  Chief& operator=(const Chief&) = delete;

  LOCKSTEP_COLD_DECL void begin() override;

  void submit(Request request) override { handle(0, std::move(request)); }

  void accuse(Accuse accusation) override { add_accusation(0, accusation); }

  void fail(const std::string& what) override { declare_lost(0, "failed: " + printable(what)); }

  LOCKSTEP_COLD_DECL void leave() override;
  LOCKSTEP_COLD_DECL void shut_down() override;
  LOCKSTEP_COLD_DECL void abort() override;

 private:
  using Member = MemberEntry;
  struct Accusation {
    std::size_t accuser = 0;
    Accuse of{};
  };

  void log(LogLevel level, const std::string& line) { setup_.log(level, line); }

  std::string name(std::size_t rank) const { return members_.name(rank); }

  // --- the join ---

  /// Looks the own address up until DNS has it: names of hosts may be published late.
  LOCKSTEP_COLD_DECL void listen();

  /// The join ends for all that are there.
  LOCKSTEP_COLD_DECL void abort_join(const std::string& sentence);
  LOCKSTEP_COLD_DECL void admit(const std::shared_ptr<Connection>& link, const Hello& hello);

  /// The job has one family of addresses, the chief's: the data connections have it too.
  LOCKSTEP_COLD_DECL void redirect_address_family(const std::shared_ptr<Connection>& link,
                                                  const Hello& hello);

  /// Why the newcomer could not exchange data with the others.
  LOCKSTEP_COLD_DECL std::optional<std::string> data_fault(const std::shared_ptr<Connection>& link,
                                                           const Hello& hello,
                                                           const std::string& newcomer) const;

  /// A worker without a rank waits until it is known which ranks are free.
  LOCKSTEP_COLD_DECL void queue_unranked(const std::shared_ptr<Connection>& link);
  LOCKSTEP_COLD_DECL void assign_rank(const std::shared_ptr<Connection>& link, std::size_t rank);
  LOCKSTEP_COLD_DECL void check_join(Clock::time_point now);
  LOCKSTEP_COLD_DECL void start();

  /// Of all ranks; nothing, and the join has ended, if some could not reach each other.
  LOCKSTEP_COLD_DECL std::optional<std::vector<std::string>> decide_data_addresses();

  // --- the members ---

  LOCKSTEP_COLD_DECL void on_frame(std::size_t rank, FrameType type, std::string_view body);
  LOCKSTEP_COLD_DECL void disconnect(std::size_t rank, const std::string& how);

  /// The connection of `rank` has ended.
  LOCKSTEP_COLD_DECL void on_disconnect(std::size_t rank, const std::string& how);
  LOCKSTEP_COLD_DECL void declare_lost(std::size_t rank, const std::string& how);
  LOCKSTEP_COLD_DECL void answer(std::size_t rank, Reply reply);
  LOCKSTEP_COLD_DECL void handle(std::size_t rank, Request request);
  LOCKSTEP_COLD_DECL void schedule_store_expiry();

  /// A rank that has left is lost for those who wait for it.
  LOCKSTEP_COLD_DECL void declare_lost_if_awaited(std::size_t rank);
  LOCKSTEP_COLD_DECL std::string how_left(std::size_t rank) const;

  /// Whoever has lost its own connections accuses all others, and is accused by them: the one whom
  /// most accuse within half of the verdict's time, and the longest round trip, is lost; of equals
  /// the first.
  LOCKSTEP_COLD_DECL void add_accusation(std::size_t accuser, const Accuse& of);
  LOCKSTEP_COLD_DECL void judge_after(Clock::duration time);
  LOCKSTEP_COLD_DECL void judge();

  // --- time ---

  LOCKSTEP_COLD_DECL void tick();
  LOCKSTEP_COLD_DECL void send_heartbeat(Member& member);
  LOCKSTEP_COLD_DECL void check_stall(Clock::time_point now);

  // --- the end ---

  LOCKSTEP_COLD_DECL void notify_all_left();
  LOCKSTEP_COLD_DECL void check_shut_down();

  Control& control_;
  const ProgressBoard& board_;
  const JoinSetup& setup_;
  Listener listener_;
  Store store_;
  MemberRegistry members_;
  RepeatedLookup lookup_;
  std::string listen_fault_;        // why the chief does not listen yet
  tcp address_family_ = tcp::v4();  // by which all members come
  Timer ticker_, store_timer_, join_timer_, judge_timer_;
  WakeupMonitor wakeups_{Clock::now()};
  StallTimer stall_timer_;
  Clock::time_point join_started_at_, next_log_, next_stall_log_;
  std::vector<Accusation> accusations_;
  Clock::time_point accused_at_;  // for the first time
  bool started_ = false, shutting_down_ = false;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/chief.ipp"
#endif
