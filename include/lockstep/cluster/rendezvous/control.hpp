/// \file
/// What the calling threads share with the control thread. Invariants: the first loss is the
/// verdict, and never changes; once there is one every wait ends with it; no wait is longer than
/// its deadline.
#pragma once

#include <array>
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
#include <utility>
#include <vector>

#include "lockstep/cluster/rendezvous/clock.hpp"
#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/cluster/rendezvous/stall.hpp"
#include "lockstep/cluster/resolved_cluster.hpp"
#include "lockstep/cluster/timeouts.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/exchange_progress.hpp"
#include "lockstep/core/log.hpp"

namespace lockstep::detail {

/// `text` of another process, fit for a message: printable, of one line, of bounded length.
inline std::string printable(std::string_view text, std::size_t longest = 600) {
  std::string result(text.substr(0, longest));
  for (char& c : result)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7F) c = '?';
  if (text.size() > longest) result += "...";
  return result;
}

/// How a rank is lost whose connection to `other` failed.
inline std::string link_failure(std::string_view other, std::string_view how) {
  return text({"lives, but its connection to ", other, ", which lives too, failed: ", how,
               "; check the network between the two (cable, network card, firewall, MTU)"});
}

/// The end of a sentence on a rank that did not come.
inline constexpr const char* late_remedy =
    "; start it, or give it more time by LOCKSTEP_RENDEZVOUS_TIMEOUT";

/// What a side of the rendezvous is told at the start.
struct JoinSetup {
  ResolvedCluster cluster;
  std::string job_id;                    ///< never empty
  std::vector<SignatureField> fields{};  ///< what must be equal at the join
  StallLimits limits{};
  ClusterTimeouts timeouts{};  ///< complete
  std::function<void(LogLevel, std::string_view)> log{};

  /// Rank `r`'s address as its description says it; empty if it does not.
  std::string described_address(std::size_t r) const {
    if (cluster.cluster) return to_string(cluster.cluster->address(r));
    return r == 0 && cluster.chief ? to_string(*cluster.chief) : std::string();
  }
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

  void joined(Membership membership) {
    change([&] { membership_ = std::move(membership); });
  }
  /// The join failed, and not because of a peer that was lost.
  void refuse(std::exception_ptr error) {
    change([&] {
      if (!refusal_) refusal_ = std::move(error);
    });
  }
  void answer(Reply reply) {
    change([&] {
      const auto found = pending_.find(reply.id);
      if (found != pending_.end()) found->second = std::move(reply);
    });
  }
  void all_left() {
    change([&] { all_left_ = true; });
  }
  void wound_down() {
    change([&] { wound_down_ = true; });
  }
  /// The longest way of a report to the chief and of its verdict back.
  void note_round_trip(Clock::duration time) {
    round_trip_.store(whole_milliseconds(time) + milliseconds(1), std::memory_order_relaxed);
  }
  /// Tells the program of the verdict, once.
  void announce() {
    const auto loss = verdict();
    const std::scoped_lock lock(callback_mutex_);
    if (!loss || announced_ || !callback_) return;
    announced_ = true;
    callback_(loss->error());
  }

  // From any thread.

  /// True if `loss` is now the verdict; false if there was one.
  bool lose(LostPeer loss) {
    bool fresh = false;
    change([&] {
      fresh = !verdict_;
      if (fresh) verdict_ = std::move(loss);
    });
    return fresh;
  }
  std::optional<LostPeer> verdict() const {
    const std::scoped_lock lock(mutex_);
    return verdict_;
  }
  milliseconds round_trip() const { return round_trip_.load(std::memory_order_relaxed); }
  bool ended() const {
    const std::scoped_lock lock(mutex_);
    return verdict_ || refusal_;
  }
  void on_loss(std::function<void(const PeerLost&)> callback) {
    const std::scoped_lock lock(callback_mutex_);
    callback_ = std::move(callback);
  }

  /// Who knows how far this process is in its exchanges; called in the control thread.
  void on_exchange(std::function<ExchangeProgress()> progress) {
    const std::scoped_lock lock(callback_mutex_);
    exchange_ = std::move(progress);
  }
  ExchangeProgress exchange() {
    const std::scoped_lock lock(callback_mutex_);
    return exchange_ ? exchange_() : ExchangeProgress{};
  }

  Membership wait_joined(milliseconds deadline) {
    wait(deadline, [&] { return membership_ || refusal_ || verdict_; });
    const std::scoped_lock lock(mutex_);
    if (refusal_) std::rethrow_exception(refusal_);
    if (verdict_) throw verdict_->error();
    if (!membership_)
      throw CollectiveTimeout({"rendezvous: the control thread did not end the join within ",
                               seconds(deadline), "; the machine may be overloaded"});
    return *membership_;
  }
  std::optional<LostPeer> wait_verdict(milliseconds deadline) {
    wait(deadline, [&] { return verdict_.has_value(); });
    return verdict();
  }
  void wait_left(milliseconds deadline) {
    wait(deadline, [&] { return all_left_ || verdict_ || refusal_; });
  }
  void wait_wound_down(milliseconds deadline) {
    wait(deadline, [&] { return wound_down_; });
  }

  /// A number for a request, under which `wait_reply` finds its answer.
  std::uint64_t open_request() {
    const std::scoped_lock lock(mutex_);
    pending_.emplace(++last_id_, std::nullopt);
    return last_id_;
  }
  /// \throws PeerLost if there is a verdict; CollectiveTimeout after the deadline; UsageError.
  Reply wait_reply(std::uint64_t id, milliseconds deadline) {
    wait(deadline, [&] { return verdict_ || pending_[id]; });
    const std::scoped_lock lock(mutex_);
    auto reply = std::move(pending_[id]);
    pending_.erase(id);
    if (reply && reply->status == Reply::Status::done) return std::move(*reply);
    if (reply && reply->status == Reply::Status::wrong) throw UsageError(reply->value);
    if (verdict_) throw verdict_->error();
    if (reply) throw CollectiveTimeout(reply->value);
    throw CollectiveTimeout({"rendezvous: the chief gave no answer within ", seconds(deadline)});
  }

 private:
  template <class Change>
  void change(Change apply) {
    {
      const std::scoped_lock lock(mutex_);
      apply();
    }
    changed_.notify_all();
  }
  template <class Condition>
  void wait(milliseconds deadline, Condition condition) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, Clock::now() + deadline, condition);
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Membership> membership_;
  std::exception_ptr refusal_;
  std::optional<LostPeer> verdict_;
  bool all_left_ = false, wound_down_ = false;
  std::atomic<milliseconds> round_trip_{milliseconds(0)};
  std::uint64_t last_id_ = 0;
  std::map<std::uint64_t, std::optional<Reply>> pending_;
  std::mutex callback_mutex_;
  std::function<void(const PeerLost&)> callback_;
  std::function<ExchangeProgress()> exchange_;
  bool announced_ = false;
};

/// One side of the rendezvous. All is called in the control thread.
class Side {
 public:
  virtual ~Side() = default;
  virtual void begin() = 0;
  virtual void submit(Request request) = 0;
  /// An exchange with a rank failed; `how` goes on after "its exchange with rank 1 failed: ", or
  /// "its connection to rank 1 failed: ".
  virtual void accuse(Accuse accusation) = 0;
  /// This process cannot go on.
  virtual void fail(const std::string& what) = 0;
  /// The work of this process is done.
  virtual void leave() = 0;
  /// Says goodbye and ends the connections; calls `wound_down` when the peers know.
  virtual void wind_down() = 0;
  /// Ends the connections without a word, as a process that is killed.
  virtual void sever() = 0;
};

}  // namespace lockstep::detail
