/// \file
/// What the calling threads share with the control thread. Invariants: the first loss is the
/// verdict, and never changes; once there is one every wait ends with it; no wait is longer than
/// its deadline.
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

#include "lockstep/cluster/rendezvous/clock.hpp"
#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/cluster/rendezvous/stall.hpp"
#include "lockstep/cluster/resolved_cluster.hpp"
#include "lockstep/cluster/timeouts.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/exchange_progress.hpp"
#include "lockstep/core/log.hpp"

namespace lockstep::detail {

/// `text` of another process, fit for a message: printable, of one line, of bounded length.
LOCKSTEP_COLD_DECL std::string printable(std::string_view text, std::size_t longest = 600);

/// How a rank is lost whose connection to `other` failed.
LOCKSTEP_COLD_DECL std::string link_failure(std::string_view other, std::string_view how);

/// The end of a sentence on a rank that did not come.
inline constexpr const char* late_remedy = "; start it, or raise LOCKSTEP_RENDEZVOUS_TIMEOUT";

/// What a side of the rendezvous is told at the start.
struct JoinSetup {
  ResolvedCluster cluster;
  std::string job_id;                    ///< never empty
  std::vector<SignatureField> fields{};  ///< what must be equal at the join
  StallLimits limits{};
  ClusterTimeouts timeouts{};  ///< complete
  std::function<void(LogLevel, std::string_view)> log{};

  /// Rank `r`'s address as its description says it; empty if it does not.
  LOCKSTEP_COLD_DECL std::string described_address(std::size_t r) const;
};

/// What a process knows once all are there.
struct Membership {
  std::size_t rank = 0;
  RunId run_id{};
  MeshKey key{};
  std::vector<std::string> addresses{};
  std::string local_address{};
};

class Control {
 public:
  // In the control thread.

  LOCKSTEP_COLD_DECL void set_joined(Membership membership);
  /// The join failed, and not because of a peer that was lost.
  LOCKSTEP_COLD_DECL void set_join_error(std::exception_ptr error);
  LOCKSTEP_COLD_DECL void set_reply(Reply reply);
  LOCKSTEP_COLD_DECL void set_all_left();
  LOCKSTEP_COLD_DECL void mark_shut_down();
  /// The longest way of a report to the chief and of its verdict back.
  LOCKSTEP_COLD_DECL void note_round_trip(Clock::duration time);
  /// Tells the program of the verdict, once.
  LOCKSTEP_COLD_DECL void announce();

  // From any thread.

  /// True if `loss` is now the verdict; false if there was one.
  LOCKSTEP_COLD_DECL bool declare_lost(LostPeer loss);
  LOCKSTEP_COLD_DECL std::optional<LostPeer> verdict() const;
  milliseconds round_trip() const { return round_trip_.load(std::memory_order_relaxed); }
  LOCKSTEP_COLD_DECL bool ended() const;
  LOCKSTEP_COLD_DECL void on_loss(std::function<void(const PeerLost&)> callback);

  /// Who knows how far this process is in its exchanges; called in the control thread.
  LOCKSTEP_COLD_DECL void on_exchange(std::function<ExchangeProgress()> progress);
  LOCKSTEP_COLD_DECL ExchangeProgress exchange();
  LOCKSTEP_COLD_DECL Membership wait_joined(milliseconds deadline);
  LOCKSTEP_COLD_DECL std::optional<LostPeer> wait_verdict(milliseconds deadline);
  LOCKSTEP_COLD_DECL void wait_left(milliseconds deadline);
  LOCKSTEP_COLD_DECL void wait_shut_down(milliseconds deadline);

  /// A number for a request, under which `wait_reply` finds its answer.
  LOCKSTEP_COLD_DECL std::uint64_t open_request();
  /// \throws PeerLost if there is a verdict; CollectiveTimeout after the deadline; UsageError.
  LOCKSTEP_COLD_DECL Reply wait_reply(std::uint64_t id, milliseconds deadline);

 private:
  template <class Change>
  void change(Change apply);
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

/// One side of the rendezvous. All is called in the control thread.
class Role {
 public:
  virtual ~Role() = default;
  virtual void begin() = 0;
  virtual void submit(Request request) = 0;
  /// An exchange with a rank failed; `how` goes on after "its exchange with rank 1 failed: ", or
  /// "its connection to rank 1 failed: ".
  virtual void accuse(Accuse accusation) = 0;
  /// This process cannot go on.
  virtual void fail(const std::string& what) = 0;
  /// The work of this process is done.
  virtual void leave() = 0;
  /// Says goodbye and ends the connections; calls `mark_shut_down` when the peers know.
  virtual void shut_down() = 0;
  /// Ends the connections without a word, as a process that is killed.
  virtual void abort() = 0;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/control.ipp"
#endif
