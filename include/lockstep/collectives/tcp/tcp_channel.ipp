#pragma once

#include "lockstep/collectives/tcp/tcp_channel.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/collectives/algorithms/spin.hpp"
#include "lockstep/collectives/tcp/tcp_mesh.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep::detail {

TcpChannel::TcpChannel(TcpMesh& mesh, std::vector<std::size_t> peers,
                       std::vector<std::vector<TcpLink>> links)
    : mesh_(mesh), peers_(std::move(peers)), first_link_(mesh.size()) {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    first_link_[peers_[i]] = links_.size();
    links_per_peer_ = links[i].size();
    for (TcpLink& link : links[i])
      links_.push_back({peers_[i], std::move(link), &link == links[i].data()});
  }
  polls_.resize(links_.size() + 1);
}

std::size_t TcpChannel::rank() const { return mesh_.rank(); }
std::size_t TcpChannel::size() const { return mesh_.size(); }
std::size_t TcpChannel::here() const { return mesh_.name(rank()); }
ExchangeProgress TcpChannel::progress() const {
  ExchangeProgress now{
      done_.load(std::memory_order_relaxed), {}, moved_.load(std::memory_order_relaxed)};
  const std::size_t peer = waits_for_.load(std::memory_order_relaxed);
  if (peer != nobody) now.waits_for = mesh_.name(peer);
  return now;
}

void TcpChannel::claim(const GroupOptions& options,
                       std::function<std::optional<Shutdown>()> ended) {
  const std::scoped_lock lock(io_);
  if (std::exchange(claimed_, true))
    throw UsageError("tcp group: channel {} is in use; give each group of a mesh its own",
                     options.channel);
  timeout_ = options.timeout;
  spins_ = options.spins / polls_per_round;
  ended_ = std::move(ended);
}

template <class F>
void TcpChannel::for_each_stripe(std::size_t peer, std::size_t n, const F& f) {
  Link* const links = &links_[first_link_[peer]];
  const std::size_t stripes = std::clamp(n / least_stripe, std::size_t{1}, links_per_peer_);
  for (std::size_t i = 0; i < stripes; ++i) {
    const Slice part = slice_of(n, stripes, i);
    f(links[i].tcp, part.first, part.count);
  }
}

void TcpChannel::send(std::size_t peer, const std::byte* p, std::size_t n) {
  count_sent(n);
  for_each_stripe(peer, n, [&](TcpLink& link, std::size_t first, std::size_t count) {
    link.send(p + first, count);
  });
}

void TcpChannel::receive(std::size_t peer, std::byte* p, std::size_t n) {
  for_each_stripe(peer, n, [&](TcpLink& link, std::size_t first, std::size_t count) {
    link.receive(p + first, count);
  });
}

void TcpChannel::begin(const CollectiveCall& call) {
  call_ = call;
  if (mesh_.is_down()) throw_shutdown();
  for (Link& link : links_) {
    link.is_ahead = false;
    if (!link.first) continue;
    // The sender of a message does not wait for the receiver's call.
    const bool is_message = call.operation == CollectiveCall::Operation::message;
    if (!is_message || call.root == rank()) link.tcp.send_call(call);
    if (!is_message || call.root != rank()) link.tcp.receive_call();
  }
}

void TcpChannel::complete() {
  int spins = polls(spins_);
  std::chrono::nanoseconds idle{0};
  while (true) {
    bool progress = false;
    const Link* waiting = nullptr;
    for (Link& link : links_) {
      if (link.tcp.writes()) handle(link, link.tcp.write(progress));
      while (may_read(link)) {
        const TcpLink::Event event = link.tcp.read(progress);
        if (event != TcpLink::Event::call) {
          handle(link, event);
          break;
        }
        check_call(link);
      }
      if (!waiting && (link.tcp.reads() || link.tcp.writes())) waiting = &link;
    }
    if (!waiting) break;
    if (progress) {
      moved_.fetch_add(1, std::memory_order_relaxed);
      idle = {};
      spins = polls(spins_);
      continue;
    }
    if (mesh_.is_down()) throw_shutdown();
    if (spins > 0) {
      --spins;
      continue;
    }
    if (idle >= timeout_) throw_timeout();
    waits_for_.store(waiting->rank, std::memory_order_relaxed);
    idle += wait(timeout_ - idle);
  }
  waits_for_.store(nobody, std::memory_order_relaxed);
  // All members must count alike, but along a tree they do not wait equally often.
  if (mesh_.options().topology == Topology::direct) count_progress();
}

bool TcpChannel::may_read(const Link& link) const {
  return link.tcp.reads() && (link.first || !links_[first_link_[link.rank]].tcp.awaits_call());
}

void TcpChannel::check_call(Link& link) {
  if (link.tcp.peers_call() == call_) return;
  Shutdown why = cause(Cause::mismatch, link.rank);
  why.theirs = link.tcp.peers_call();
  why.ours = call_;
  mesh_.shut_down(why);
  throw_shutdown();
}

std::chrono::nanoseconds TcpChannel::wait(std::chrono::nanoseconds most) {
  std::size_t count = 0;
  bool awaits_notices = false;
  polls_[count++] = {mesh_.wakeup(), POLLIN, 0};
  for (Link& link : links_) {
    const bool listens = link.first && !link.is_ahead && !link.tcp.reads();
    awaits_notices = awaits_notices || listens;
    const int events = (link.tcp.writes() ? POLLOUT : 0) | (may_read(link) || listens ? POLLIN : 0);
    if (events != 0) polls_[count++] = {link.tcp.socket(), static_cast<short>(events), 0};
  }
  const auto before = std::chrono::steady_clock::now();
  const auto limit = std::min<std::chrono::nanoseconds>(tick, most);
  (void)::poll(polls_.data(), count,
               static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(limit).count()));
  const auto now = std::chrono::steady_clock::now();
  if (awaits_notices) look_for_notices();
  if (ended_)
    if (const auto why = ended_()) mesh_.shut_down(*why);
  // A process that was suspended (Ctrl-Z, a frozen container) was not waiting.
  const bool ran = now - before < 10 * tick;
  if (now >= next_look_) {
    find_dead(ran && now < next_look_ + 10 * tick);
    next_look_ = now + tick;
  }
  return ran ? now - before : std::chrono::nanoseconds(tick);
}

void TcpChannel::look_for_notices() {
  for (Link& link : links_) {
    if (link.is_ahead || !link.first || link.tcp.reads()) continue;
    TcpLink::Event event = TcpLink::Event::none;
    link.is_ahead = !link.tcp.looks_for_notice(event);
    if (event != TcpLink::Event::ended) handle(link, event);  // a peer that has finished may close
  }
}

void TcpChannel::find_dead(bool ran) {
  const auto now = std::chrono::steady_clock::now();
  for (Link& link : links_) {
    if (!link.tcp.reads() && !link.tcp.writes()) continue;
    if (!link.tcp.health().is_dead(link.tcp.socket(), now, ran, mesh_.options().silence)) continue;
    mesh_.shut_down(cause(Cause::dead_link, link.rank));
    throw_shutdown();
  }
}

void TcpChannel::handle(Link& link, TcpLink::Event event) {
  switch (event) {
    case TcpLink::Event::none:
    case TcpLink::Event::call:
      return;
    case TcpLink::Event::ended:
      throw_lost(link);
    case TcpLink::Event::corrupt:
      mesh_.shut_down(cause(Cause::corrupt, link.rank));
      throw_shutdown();
    case TcpLink::Event::notice:
      mesh_.shut_down(link.tcp.notice());
      throw_shutdown();
  }
}

Shutdown TcpChannel::cause(Cause why, std::size_t peer) const {
  return {.cause = why,
          .rank = static_cast<std::uint32_t>(mesh_.name(peer)),
          .by = static_cast<std::uint32_t>(here()),
          .silence_ms = static_cast<std::uint32_t>(mesh_.options().silence.count())};
}

void TcpChannel::throw_lost(Link& link) {
  if (mesh_.is_down()) throw_shutdown();
  // Calls and notices come over the first connection only.
  Link& first = links_[first_link_[link.rank]];
  pollfd comes{first.tcp.socket(), POLLIN, 0};
  if (!link.first) (void)::poll(&comes, 1, static_cast<int>(tick.count()));  // it may come later
  if (first.tcp.find_notice()) {
    mesh_.shut_down(first.tcp.notice());
    throw_shutdown();
  }
  mesh_.shut_down(cause(Cause::lost, link.rank));
  const std::size_t peer = mesh_.name(link.rank);
  throw CollectiveError(
      peer,
      "{}: replica {} lost its connection to replica {} ({}); its process ended, or the network "
      "failed",
      call_.name(), here(), peer, link.tcp.fact());
}

void TcpChannel::throw_timeout() {
  std::vector<std::size_t> late;
  for (const Link& link : links_)
    if (link.tcp.awaits_call()) late.push_back(link.rank);
  const bool arrived = late.empty();
  for (const Link& link : links_)
    if (late.empty() && (link.tcp.reads() || link.tcp.writes())) late.push_back(link.rank);
  const std::size_t first = *std::min_element(late.begin(), late.end());
  mesh_.shut_down(cause(Cause::timed_out, first));
  for (std::size_t& rank : late) rank = mesh_.name(rank);
  throw_late(mesh_.name(first), call_.name(), here(), timeout_, late, arrived);
}

void TcpChannel::throw_shutdown() {
  detail::throw_shutdown(mesh_.shutdown(), call_.name(), here(), threw_mismatch_);
}

void TcpChannel::end_by_error() {
  mesh_.shut_down(cause(Cause::aborted, rank()));
  waits_for_.store(nobody, std::memory_order_relaxed);
  for (const auto& channel : mesh_.channels_)
    if (channel.get() != this) channel->notify_if_idle();
  notify(std::chrono::steady_clock::now() + notice_timeout);
}

void TcpChannel::end() {
  count_progress();
  if (mesh_.is_down()) notify_if_idle();
}

void TcpChannel::notify_if_idle() {
  const std::unique_lock lock(io_, std::try_to_lock);
  if (lock.owns_lock()) notify(std::chrono::steady_clock::now());
}

void TcpChannel::notify(TimePoint deadline) {
  if (std::exchange(notified_, true)) return;
  const Shutdown why = mesh_.shutdown();
  for (Link& link : links_) link.tcp.drop_queues();
  // A notice follows the record that is half sent. No link waits for another one.
  for (bool waits = true; waits;) {
    std::size_t count = 0;
    for (Link& link : links_) {
      bool progress = false;
      bool gone = link.tcp.write(progress) != TcpLink::Event::none;
      if (!gone && link.first && !link.is_notified && !link.tcp.writes()) {
        link.is_notified = true;
        link.tcp.queue_notice(why);
        gone = link.tcp.write(progress) != TcpLink::Event::none;
      }
      if (gone) link.tcp.end_sending();
      if (link.tcp.writes()) polls_[count++] = {link.tcp.socket(), POLLOUT, 0};
    }
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    waits = count > 0 && left.count() > 0;
    if (waits) (void)::poll(polls_.data(), count, static_cast<int>(left.count()));
  }
  for (Link& link : links_) link.tcp.end_sending();
}

}  // namespace lockstep::detail
