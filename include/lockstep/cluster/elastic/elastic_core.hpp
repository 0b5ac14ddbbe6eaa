/// \file
/// The implementation of an ElasticMember: its thread and state. Invariants: only that thread
/// touches the participant, the connections and the votes; the destructor returns in bounded time.
#pragma once

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

#include "lockstep/cluster/description/resolved_cluster.hpp"
#include "lockstep/cluster/description/timeouts.hpp"
#include "lockstep/cluster/elastic/decision.hpp"
#include "lockstep/cluster/elastic/generation.hpp"
#include "lockstep/cluster/elastic/machine_folder.hpp"
#include "lockstep/cluster/elastic/participant.hpp"
#include "lockstep/cluster/elastic/peer_links.hpp"
#include "lockstep/cluster/elastic/vote_file.hpp"
#include "lockstep/cluster/network/clock.hpp"
#include "lockstep/cluster/network/log_thread.hpp"
#include "lockstep/cluster/network/secret.hpp"
#include "lockstep/cluster/network/timer.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/log.hpp"

namespace lockstep::detail {

/// The thread of a member and its state.
///
///     program's thread                     member's thread
///     join, next --post--> participant  <--letter, refused--  links  <-->  other processes
///     outcome_  <--notify--'     '--change--> votes
struct ElasticCore {
  using Result = std::variant<Decision, ElasticFailure, std::exception_ptr>;

  /// As ElasticMember.
  LOCKSTEP_COLD_DECL ElasticCore(const ResolvedCluster& description, const Secret& secret,
                                 ElasticSettings chosen);
  ElasticCore(const ElasticCore&) = delete;
  ElasticCore& operator=(const ElasticCore&) = delete;
  LOCKSTEP_COLD_DECL ~ElasticCore();

  /// Runs `action` on the member's thread, then does what follows from it.
  template <class Action>
  void act(Action action);
  LOCKSTEP_COLD_DECL void tick();
  /// Logs from time to time why `join` waits: for a job that runs, or for processes.
  LOCKSTEP_COLD_DECL void log_wait(Clock::time_point now);
  LOCKSTEP_COLD_DECL void log_missing(Clock::time_point now);
  /// Tries to listen, until the join's deadline. False if this process does not listen yet.
  LOCKSTEP_COLD_DECL bool try_listen(Clock::time_point now);
  LOCKSTEP_COLD_DECL void end_join(const std::string& sentence);
  /// Sends letters, publishes flags and the outcome.
  LOCKSTEP_COLD_DECL void publish();
  LOCKSTEP_COLD_DECL void publish_error(std::exception_ptr error);
  LOCKSTEP_COLD_DECL void log(LogLevel level, std::string_view line);
  /// Starts `join` or `next` and waits for the outcome, at most for `limit` if there is one, and at
  /// most for `patience` after a stop is requested.
  LOCKSTEP_COLD_DECL Generation wait(std::function<void()> start, std::optional<milliseconds> limit,
                                     const std::stop_token& stop, milliseconds patience);
  LOCKSTEP_COLD_DECL Generation generation(const Decision& decision);
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_failure(const ElasticFailure& failure);
  LOCKSTEP_COLD_DECL void leave();
  /// Ends `leave` once all letters are sent, or at `until`.
  LOCKSTEP_COLD_DECL void wait_closed(Clock::time_point until);
  /// The body of the thread.
  LOCKSTEP_COLD_DECL void run();

  ResolvedCluster described;
  ElasticSettings settings;
  ClusterTimeouts timeouts;
  MachineFolder folder;
  VoteFile votes;
  LogThread log_thread;
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  PeerLinks links;
  Participant participant;  // used by the member's thread only, as are links and votes
  Timer ticker{io}, end{io};
  std::string last_error;
  Clock::time_point wait_logged = Clock::now();
  milliseconds wait_log_interval{60'000}, missing_log_interval = join_log_interval;
  Clock::time_point made = Clock::now(), missing_logged = made;
  std::function<void()> held_back;  // the start of `join`, until this process listens
  std::string why;                  // of the last `next`

  std::atomic<bool> has_newcomers{false}, must_reform{false};
  std::mutex mutex;  // of the next six
  std::condition_variable_any changed;
  std::optional<Result> result;
  std::vector<std::uint32_t> former;
  Decision current;                      // of the result
  std::string secret_fault, link_fault;  // if the result is that a process is missing
  bool left = false, left_posted = false;
  std::mutex callback_mutex;
  std::function<void()> callback;
  std::thread thread;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/elastic/elastic_core.ipp"
#endif
