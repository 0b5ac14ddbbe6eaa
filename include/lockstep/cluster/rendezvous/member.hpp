/// \file
/// The implementation of a Rendezvous: the control thread and its state. Invariants: only the
/// control thread touches `role` and the connections; the thread runs from the constructor to the
/// destructor, which returns in bounded time.
///
///     Rendezvous --owns--> RendezvousMember
///                            |-- io, thread      the control thread runs io.run()
///                            |-- role            Chief (rank 0) or Worker; control thread only
///                            |-- control         replies and the verdict; shared, mutex
///                            |-- board           progress of training; shared, atomics
///                            |-- log_thread      writes the lines, so that no sink can block io
#pragma once

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "lockstep/cluster/network/log_thread.hpp"
#include "lockstep/cluster/network/psk.hpp"
#include "lockstep/cluster/rendezvous/control.hpp"
#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/cluster/rendezvous/rank_progress.hpp"
#include "lockstep/cluster/rendezvous/rendezvous_options.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"

namespace lockstep::detail {

/// Compared at the join. A new version means that frames have changed.
inline constexpr std::string_view protocol = "lockstep/1";

/// One process' part of a job.
struct RendezvousMember {
  /// Joins. \throws as Rendezvous does.
  LOCKSTEP_COLD_DECL explicit RendezvousMember(RendezvousOptions options);
  RendezvousMember(const RendezvousMember&) = delete;
  RendezvousMember& operator=(const RendezvousMember&) = delete;
  /// Closes the connections and joins the control thread.
  LOCKSTEP_COLD_DECL ~RendezvousMember();

  /// Hands a line to the log thread, if there is one.
  LOCKSTEP_COLD_DECL void log(LogLevel level, std::string_view line);
  /// Sends a request to the store and waits for the reply.
  LOCKSTEP_COLD_DECL Reply call(Request request, const std::atomic<bool>* aborted = nullptr);
  /// Reports `accusation` to the chief and waits for the verdict. `last_resort` is how the accused
  /// is lost if the chief names no rank within `patience`.
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
  bool left = false;  // used by the control thread only

 private:
  /// A Chief on rank 0, else a Worker.
  LOCKSTEP_COLD_DECL void make_role();
  /// The log thread, if there is a sink, and the control thread.
  LOCKSTEP_COLD_DECL void start_threads(std::function<void(LogLevel, std::string_view)> sink);
  /// The control thread. An exception ends the job with this process as the lost rank.
  LOCKSTEP_COLD_DECL void run();
  /// Leaves within a second, then closes what is left and joins the control thread.
  LOCKSTEP_COLD_DECL void shut_down();
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/member.ipp"
#endif
