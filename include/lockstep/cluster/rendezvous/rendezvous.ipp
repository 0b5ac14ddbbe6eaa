#pragma once

#include "lockstep/cluster/rendezvous/rendezvous.hpp"

#include <algorithm>
#include <utility>

#include "lockstep/cluster/network/clock.hpp"
#include "lockstep/cluster/network/timer.hpp"
#include "lockstep/cluster/rendezvous/control.hpp"
#include "lockstep/cluster/rendezvous/member.hpp"
#include "lockstep/cluster/rendezvous/signature.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/process/standard_streams.hpp"
#include "lockstep/core/quote.hpp"

namespace lockstep {

namespace detail {

/// \throws UsageError for an empty name or one that is too long.
inline Request make_request(Operation operation, std::string_view name, milliseconds deadline) {
  if (name.empty() || name.size() > max_name_bytes)
    throw UsageError("rendezvous: a name has {} characters; it must have 1 to {}", name.size(),
                     max_name_bytes);
  constexpr milliseconds longest = std::chrono::hours(24);
  Request request;
  request.operation = operation;
  request.name = name;
  request.deadline = std::clamp(deadline, milliseconds(0), longest);
  return request;
}

}  // namespace detail

Rendezvous::Rendezvous(RendezvousOptions options) {
  detail::reserve_standard_streams();
  member_ = std::make_unique<detail::RendezvousMember>(std::move(options));
}

Rendezvous::~Rendezvous() { leave(milliseconds(waits_ ? 1000 : 0)); }

std::size_t Rendezvous::rank() const { return member_->membership.rank; }
std::size_t Rendezvous::size() const { return member_->membership.addresses.size(); }
const std::string& Rendezvous::address_of(std::size_t rank) const {
  return member_->membership.addresses.at(rank);
}
const std::string& Rendezvous::local_address() const { return member_->membership.local_address; }
const std::array<std::uint8_t, 16>& Rendezvous::run_id() const {
  return member_->membership.run_id;
}
const std::array<std::uint8_t, 32>& Rendezvous::key() const { return member_->membership.key; }

void Rendezvous::set(std::string_view name, std::string_view value, milliseconds deadline) {
  auto request = detail::make_request(detail::Operation::set, name, deadline);
  request.value = value;
  member_->call(std::move(request));
}

std::string Rendezvous::get(std::string_view name, milliseconds deadline) {
  return member_->call(detail::make_request(detail::Operation::get, name, deadline)).value;
}

std::uint64_t Rendezvous::add(std::string_view name, std::uint64_t n, milliseconds deadline) {
  auto request = detail::make_request(detail::Operation::add, name, deadline);
  request.number = n;
  return member_->call(std::move(request)).number;
}

void Rendezvous::barrier(std::string_view name, milliseconds deadline) {
  member_->call(detail::make_request(detail::Operation::barrier, name, deadline));
}

void Rendezvous::agree(std::string_view part, const std::vector<SignatureField>& fields,
                       milliseconds deadline) {
  for (auto& portion : detail::split_fields(fields)) {
    auto request = detail::make_request(detail::Operation::agree, part, deadline);
    request.fields = std::move(portion);
    member_->call(std::move(request));
  }
}

std::string Rendezvous::gather(std::string_view name, const std::vector<SignatureField>& fields,
                               std::string_view value, milliseconds deadline,
                               const std::atomic<bool>* aborted) {
  auto request = detail::make_request(detail::Operation::gather, name, deadline);
  request.fields = fields;
  request.value = value;
  return member_->call(std::move(request), aborted).value;
}

void Rendezvous::wake() { member_->control.wake(); }

void Rendezvous::note_progress(std::uint64_t step, Phase phase, bool first_step) {
  member_->board.note({step, phase, first_step});
}

void Rendezvous::on_loss(std::function<void(const PeerLost&)> callback) {
  member_->control.on_loss(std::move(callback));
  detail::post(member_->io, [member = member_.get()] { member->control.announce(); });
}

void Rendezvous::on_exchange(std::function<ExchangeProgress()> progress) {
  member_->control.on_exchange(std::move(progress));
}

void Rendezvous::log(LogLevel level, std::string_view line) { member_->log(level, line); }

std::optional<PeerLost> Rendezvous::verdict(milliseconds wait) {
  const auto loss = member_->control.wait_verdict(wait);
  return loss ? std::optional(loss->error()) : std::nullopt;
}

const ClusterTimeouts& Rendezvous::timeouts() const { return member_->setup.timeouts; }

std::chrono::milliseconds Rendezvous::verdict_timeout() const {
  return timeouts().verdict + member_->control.round_trip();
}

PeerLost Rendezvous::blame(std::size_t suspect, const std::string& how) {
  return member_->blame({static_cast<std::uint32_t>(suspect), how}, verdict_timeout(),
                        "does not answer: " + detail::printable(how, 200));
}

PeerLost Rendezvous::blame(const LinkFailed& failure) {
  const std::size_t peer = failure.peer().value_or(rank()), other = failure.other();
  return member_->blame(
      {static_cast<std::uint32_t>(peer), failure.fact(), static_cast<std::uint32_t>(other)},
      verdict_timeout() + timeouts().silence + 2 * detail::heartbeat_interval,
      detail::link_failure(format_text("rank {}", other), detail::printable(failure.fact())));
}

void Rendezvous::fail(const std::string& what) {
  detail::post(member_->io, [member = member_.get(), what] { member->role->fail(what); });
  member_->control.wait_verdict(verdict_timeout());
}

void Rendezvous::end(std::size_t rank, const std::string& how) {
  member_->control.declare_lost({static_cast<std::uint32_t>(rank), address_of(rank), how, {}});
  detail::post(member_->io, [member = member_.get()] { member->control.announce(); });
}

void Rendezvous::leave_at_once() noexcept {
  waits_ = false;
  leave(milliseconds(0));
}

void Rendezvous::leave() noexcept { leave(timeouts().leave); }

void Rendezvous::leave(milliseconds deadline) noexcept {
  try {
    detail::post(member_->io, [member = member_.get()] {
      if (!std::exchange(member->left, true)) member->role->leave();
    });
    member_->control.wait_left(deadline);
  } catch (...) {  // out of memory: the destructor still closes the connections
  }
}

}  // namespace lockstep
