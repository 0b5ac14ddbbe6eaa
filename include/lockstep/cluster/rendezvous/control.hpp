/// \file
/// The state that calling threads share with the control thread. Invariants: the first loss is the
/// verdict and never changes; a verdict ends every wait; no wait exceeds its deadline.
///
///     training thread              Control (mutex, condition)   control thread
///     wait_joined              <-- membership_ or join_error_ <-- set_joined, set_join_error
///     open_request, wait_reply <-- pending_[id]               <-- set_reply
///     wait_verdict, verdict    <-- verdict_                   <-- declare_lost
///     on_loss, on_exchange     --> callbacks (own mutex)      --> announce, exchange
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/description/resolved_cluster.hpp"
#include "lockstep/cluster/description/timeouts.hpp"
#include "lockstep/cluster/network/clock.hpp"
#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/cluster/rendezvous/stall.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/exchange_progress.hpp"
#include "lockstep/core/log.hpp"

namespace lockstep::detail {

/// How a rank is lost whose connection to `other` failed while both processes are alive.
LOCKSTEP_COLD_DECL std::string link_failure(std::string_view other, std::string_view how);

/// The remedy for a rank that did not join in time.
inline constexpr const char* late_remedy = "; start it, or raise LOCKSTEP_RENDEZVOUS_TIMEOUT";

/// The arguments of a Chief or Worker.
struct JoinSetup {
  ResolvedCluster cluster;
  std::string job_id;                    ///< never empty
  std::vector<SignatureField> fields{};  ///< what must be equal at the join
  StallLimits limits{};
  ClusterTimeouts timeouts{};  ///< complete
  std::function<void(LogLevel, std::string_view)> log{};

  /// The address of rank `r` in the cluster description; empty if unknown.
  LOCKSTEP_COLD_DECL std::string described_address(std::size_t r) const;
};

/// A completed join: the rank of this process, the secrets of the run, and all addresses.
struct Membership {
  std::size_t rank = 0;
  RunId run_id{};
  MeshKey key{};
  std::vector<std::string> addresses{};
  std::string local_address{};
};

/// Requests, replies and the verdict, guarded by one mutex. Callbacks have a second mutex, so that
/// replacing one waits for a running call but not for the state.
class Control {
 public:
  // --- called on the control thread ---

  /// Ends the wait for the join.
  LOCKSTEP_COLD_DECL void set_joined(Membership membership);
  /// The join failed for a reason other than a lost peer. The first error stays.
  LOCKSTEP_COLD_DECL void set_join_error(std::exception_ptr error);
  /// Wakes the thread that waits for this reply. Replies to abandoned requests are dropped.
  LOCKSTEP_COLD_DECL void set_reply(Reply reply);
  /// Every rank has left: ends `wait_left`.
  LOCKSTEP_COLD_DECL void set_all_left();
  /// The role has closed its connections: ends `wait_shut_down`.
  LOCKSTEP_COLD_DECL void mark_shut_down();
  /// Stores the longest time from a report to the chief until its verdict is back.
  LOCKSTEP_COLD_DECL void note_round_trip(Clock::duration time);
  /// Runs the loss callback, once, if there is a verdict.
  LOCKSTEP_COLD_DECL void announce();

  // --- called from any thread ---

  /// Makes `loss` the verdict. Returns false if a verdict exists.
  LOCKSTEP_COLD_DECL bool declare_lost(LostPeer loss);
  /// The verdict, without waiting.
  LOCKSTEP_COLD_DECL std::optional<LostPeer> verdict() const;
  /// The value of the last `note_round_trip`, rounded up.
  milliseconds round_trip() const { return round_trip_.load(std::memory_order_relaxed); }
  /// True after a verdict or a failed join.
  LOCKSTEP_COLD_DECL bool ended() const;
  /// Replaces the loss callback. Waits for a running call of the old one.
  LOCKSTEP_COLD_DECL void on_loss(std::function<void(const PeerLost&)> callback);

  /// Replaces the function that reports exchange progress; it runs on the control thread.
  LOCKSTEP_COLD_DECL void on_exchange(std::function<ExchangeProgress()> progress);
  /// Calls that function; all zeros without one.
  LOCKSTEP_COLD_DECL ExchangeProgress exchange();
  /// \throws the error of the join; PeerLost; CollectiveTimeout after the deadline.
  LOCKSTEP_COLD_DECL Membership wait_joined(milliseconds deadline);
  /// The verdict; nullopt after the deadline.
  LOCKSTEP_COLD_DECL std::optional<LostPeer> wait_verdict(milliseconds deadline);
  /// Returns when all have left, the job has ended, or the deadline has passed.
  LOCKSTEP_COLD_DECL void wait_left(milliseconds deadline);
  /// Returns when the role has shut down, or the deadline has passed.
  LOCKSTEP_COLD_DECL void wait_shut_down(milliseconds deadline);

  /// Wakes all waits, so that those with `aborted` read it.
  LOCKSTEP_COLD_DECL void wake();
  /// A fresh request id. Must be followed by `wait_reply`, which removes the entry.
  LOCKSTEP_COLD_DECL std::uint64_t open_request();
  /// \throws PeerLost if there is a verdict; UsageError for a request that the store refused;
  /// CollectiveTimeout after the deadline; CollectiveAborted once `aborted` is true, see `wake`.
  LOCKSTEP_COLD_DECL Reply wait_reply(std::uint64_t id, milliseconds deadline,
                                      const std::atomic<bool>* aborted = nullptr);

 private:
  /// Applies a change under the lock and wakes all waiting threads.
  template <class Change>
  void change(Change apply);
  /// Waits until `condition` holds or the deadline has passed.
  template <class Condition>
  void wait(milliseconds deadline, Condition condition);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Membership> membership_;
  std::exception_ptr join_error_;
  std::optional<LostPeer> verdict_;
  bool all_left_ = false, shut_down_ = false;
  std::atomic<milliseconds> round_trip_{milliseconds(0)};
  std::uint64_t last_id_ = 0;
  std::map<std::uint64_t, std::optional<Reply>> pending_;
  std::mutex callback_mutex_;
  std::function<void(const PeerLost&)> callback_;
  std::function<ExchangeProgress()> exchange_;
  bool announced_ = false;
};

/// The chief's or a worker's part of the rendezvous. All functions are called on the control
/// thread.
class Role {
 public:
  virtual ~Role() = default;
  /// Starts the join.
  virtual void begin() = 0;
  /// Sends a request to the store.
  virtual void submit(Request request) = 0;
  /// An exchange with a rank failed. `how` completes "its exchange with rank 1 failed: " or "its
  /// connection to rank 1 failed: ".
  virtual void accuse(Accuse accusation) = 0;
  /// This process cannot continue.
  virtual void fail(const std::string& what) = 0;
  /// This process has finished its work.
  virtual void leave() = 0;
  /// Leaves and closes the connections; calls `mark_shut_down` once the peers have closed theirs.
  virtual void shut_down() = 0;
  /// Closes the connections without a message, as a killed process does.
  virtual void abort() = 0;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/control.ipp"
#endif
