/// \file
/// What is behind a Rendezvous: the control thread of a process, and what it works on. Invariants:
/// `role` and the connections are touched by the control thread alone; it runs from the constructor
/// to the destructor, which ends in bounded time.
#pragma once

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "lockstep/cluster/rendezvous/control.hpp"
#include "lockstep/cluster/rendezvous/log_thread.hpp"
#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/cluster/rendezvous/psk.hpp"
#include "lockstep/cluster/rendezvous/rank_progress.hpp"
#include "lockstep/cluster/rendezvous/rendezvous_options.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"

namespace lockstep::detail {

inline constexpr std::string_view protocol = "lockstep/1";

/// One member of a job.
struct RendezvousMember {
  /// Joins. \throws what Rendezvous throws.
  LOCKSTEP_COLD_DECL explicit RendezvousMember(RendezvousOptions options);
  RendezvousMember(const RendezvousMember&) = delete;
  RendezvousMember& operator=(const RendezvousMember&) = delete;
  /// Ends the connections.
  LOCKSTEP_COLD_DECL ~RendezvousMember();

  LOCKSTEP_COLD_DECL void log(LogLevel level, std::string_view line);
  /// Sends a request to the store and waits for the answer.
  LOCKSTEP_COLD_DECL Reply call(Request request);
  /// What the chief concludes from an accusation. `last_resort`: how the accused is lost if the
  /// chief names nobody in time.
  LOCKSTEP_COLD_DECL PeerLost blame(const Accuse& accusation, std::chrono::milliseconds patience,
                                    std::string last_resort);

  JoinSetup setup;
  std::optional<LogThread> log_thread;
  Control control;
  ProgressBoard board;
  std::unique_ptr<PskContext> psk;
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  std::unique_ptr<Role> role;
  std::thread thread;
  Membership membership;
  bool left = false;  // of the control thread

 private:
  LOCKSTEP_COLD_DECL void make_role();
  LOCKSTEP_COLD_DECL void start_threads(std::function<void(LogLevel, std::string_view)> sink);
  LOCKSTEP_COLD_DECL void run();
  LOCKSTEP_COLD_DECL void shut_down();
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/member.ipp"
#endif
