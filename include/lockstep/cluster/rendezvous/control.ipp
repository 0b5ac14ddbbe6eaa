#pragma once

#include "lockstep/cluster/rendezvous/control.hpp"

#include <utility>

#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

std::string link_failure(std::string_view other, std::string_view how) {
  return format_text(
      "is alive, but its connection to {}, which is alive too, failed: {}; check the network "
      "between the two (cable, network card, firewall, MTU)",
      other, how);
}

std::string JoinSetup::described_address(std::size_t r) const {
  if (cluster.cluster) return to_string(cluster.cluster->address(r));
  return r == 0 && cluster.chief ? to_string(*cluster.chief) : std::string();
}

void Control::set_joined(Membership membership) {
  change([&] { membership_ = std::move(membership); });
}

void Control::set_join_error(std::exception_ptr error) {
  change([&] {
    if (!join_error_) join_error_ = std::move(error);
  });
}

void Control::set_reply(Reply reply) {
  change([&] {
    const auto found = pending_.find(reply.id);
    if (found != pending_.end()) found->second = std::move(reply);
  });
}

void Control::set_all_left() {
  change([&] { all_left_ = true; });
}

void Control::mark_shut_down() {
  change([&] { shut_down_ = true; });
}

void Control::note_round_trip(Clock::duration time) {
  round_trip_.store(whole_milliseconds(time) + milliseconds(1), std::memory_order_relaxed);
}

void Control::announce() {
  const auto loss = verdict();
  const std::scoped_lock lock(callback_mutex_);
  if (!loss || announced_ || !callback_) return;
  announced_ = true;
  callback_(loss->error());
}

bool Control::declare_lost(LostPeer loss) {
  bool fresh = false;
  change([&] {
    fresh = !verdict_;
    if (fresh) verdict_ = std::move(loss);
  });
  return fresh;
}

std::optional<LostPeer> Control::verdict() const {
  const std::scoped_lock lock(mutex_);
  return verdict_;
}

bool Control::ended() const {
  const std::scoped_lock lock(mutex_);
  return verdict_ || join_error_;
}

void Control::on_loss(std::function<void(const PeerLost&)> callback) {
  const std::scoped_lock lock(callback_mutex_);
  callback_ = std::move(callback);
}

void Control::on_exchange(std::function<ExchangeProgress()> progress) {
  const std::scoped_lock lock(callback_mutex_);
  exchange_ = std::move(progress);
}

ExchangeProgress Control::exchange() {
  const std::scoped_lock lock(callback_mutex_);
  return exchange_ ? exchange_() : ExchangeProgress{};
}

Membership Control::wait_joined(milliseconds deadline) {
  wait(deadline, [&] { return membership_ || join_error_ || verdict_; });
  const std::scoped_lock lock(mutex_);
  if (join_error_) std::rethrow_exception(join_error_);
  if (verdict_) throw verdict_->error();
  if (!membership_)
    throw CollectiveTimeout(
        "rendezvous: the control thread did not finish the join within {}; the machine may be "
        "overloaded",
        seconds(deadline));
  return *membership_;
}

std::optional<LostPeer> Control::wait_verdict(milliseconds deadline) {
  wait(deadline, [&] { return verdict_.has_value(); });
  return verdict();
}

void Control::wait_left(milliseconds deadline) {
  wait(deadline, [&] { return all_left_ || verdict_ || join_error_; });
}

void Control::wait_shut_down(milliseconds deadline) {
  wait(deadline, [&] { return shut_down_; });
}

std::uint64_t Control::open_request() {
  const std::scoped_lock lock(mutex_);
  pending_.emplace(++last_id_, std::nullopt);
  return last_id_;
}

void Control::wake() {
  change([] {});
}

Reply Control::wait_reply(std::uint64_t id, milliseconds deadline,
                          const std::atomic<bool>* aborted) {
  const auto is_aborted = [&] { return aborted != nullptr && *aborted; };
  wait(deadline, [&] { return verdict_ || pending_[id] || is_aborted(); });
  const std::scoped_lock lock(mutex_);
  auto reply = std::move(pending_[id]);
  pending_.erase(id);
  if (reply && reply->status == Reply::Code::ok) return std::move(*reply);
  if (reply && reply->status == Reply::Code::error) throw UsageError(reply->value);
  if (verdict_) throw verdict_->error();
  if (is_aborted()) throw CollectiveAborted("rendezvous: a request was aborted");
  if (reply && reply->number > 0)
    throw CollectiveTimeout(static_cast<std::size_t>(reply->number - 1), "{}", reply->value);
  if (reply) throw CollectiveTimeout(reply->value);
  throw CollectiveTimeout("rendezvous: the chief did not answer within {}", seconds(deadline));
}

template <class Change>
void Control::change(Change apply) {
  {
    const std::scoped_lock lock(mutex_);
    apply();
  }
  changed_.notify_all();
}

template <class Condition>
void Control::wait(milliseconds deadline, Condition condition) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, Clock::now() + deadline, condition);
}

}  // namespace lockstep::detail
