#pragma once

#include "lockstep/testing/kernel/tcp_socket.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace lockstep::testing::detail {

namespace {

constexpr SimTime least_timeout = 200 * millisecond, most_timeout = 120 * second;
constexpr std::size_t header_bytes = 60;
constexpr int most_attempts = 6, most_retransmits = 15;

}  // namespace

void SimStream::append(const char* p, std::size_t n) {
  const std::size_t used = static_cast<std::size_t>(end_ - begin_);
  if (used + n > bytes_.size()) {
    std::vector<char> larger(std::max<std::size_t>(2 * bytes_.size(), 4096));
    while (larger.size() < used + n) larger.resize(2 * larger.size());
    for (std::uint64_t i = begin_; i < end_;) {  // keeps each byte at its number modulo the size
      const std::size_t from = i % bytes_.size(), to = i % larger.size();
      const std::size_t part =
          std::min({static_cast<std::size_t>(end_ - i), bytes_.size() - from, larger.size() - to});
      std::memcpy(larger.data() + to, bytes_.data() + from, part);
      i += part;
    }
    bytes_ = std::move(larger);
  }
  while (n > 0) {
    const std::size_t to = end_ % bytes_.size(), part = std::min(n, bytes_.size() - to);
    std::memcpy(bytes_.data() + to, p, part);
    p += part;
    n -= part;
    end_ += part;
  }
}

std::size_t SimStream::copy(std::uint64_t from, std::uint64_t to,
                            std::span<const iovec> target) const {
  std::size_t done = 0;
  while (from < to) {
    const std::size_t at = from % bytes_.size();
    const std::size_t part = std::min(static_cast<std::size_t>(to - from), bytes_.size() - at);
    const std::size_t copied = copy_out(target, done, bytes_.data() + at, part);
    done += copied;
    from += copied;
    if (copied < part) break;
  }
  return done;
}

void SimStream::drop_until(std::uint64_t end) {
  begin_ = std::max(begin_, std::min(end, end_));
  if (begin_ == end_ && bytes_.size() > (std::size_t{1} << 20)) bytes_ = {};
}

SimSocket::SimSocket(SimProcess& owner, SimNetwork& network)
    : SimFile(owner), network_(network), machine_(owner.rank) {}

std::size_t SimSocket::readable() const { return static_cast<std::size_t>(arrived_ - taken_); }

std::uint64_t SimSocket::window_limit() const { return taken_ + receive_buffer_; }

std::size_t SimSocket::room() const {
  const std::size_t used = static_cast<std::size_t>(out_.end() - acked_);
  return send_buffer_ - std::min(send_buffer_, used);
}

std::uint32_t SimSocket::ready() {
  switch (state_) {
    case State::fresh:
      return EPOLLOUT | EPOLLHUP;
    case State::listening:
      return queue_.empty() ? 0u : EPOLLIN;
    case State::connecting:
    case State::accepting:
      return 0;
    case State::failed:
    case State::closed:
      return EPOLLIN | EPOLLOUT | EPOLLHUP | EPOLLRDHUP | (error_ != 0 ? EPOLLERR : 0u);
    case State::open:
      break;
  }
  std::uint32_t events = error_ != 0 ? EPOLLERR | EPOLLIN | EPOLLOUT : 0u;
  if (readable() > 0 || fin_arrived_ || read_shut_) events |= EPOLLIN;
  if (fin_arrived_ || read_shut_) events |= EPOLLRDHUP;
  if (fin_queued_ || 3 * room() >= send_buffer_) events |= EPOLLOUT;
  if (fin_queued_ && fin_arrived_) events |= EPOLLHUP;
  return events;
}

ssize_t SimSocket::read(std::span<const iovec> to, bool peek) {
  if (state_ == State::fresh || state_ == State::listening) return -ENOTCONN;
  if (readable() > 0 && !read_shut_) {
    const std::size_t n = peer_->out_.copy(taken_, arrived_, to);
    if (peek) return static_cast<ssize_t>(n);
    taken_ += n;
    peer_->out_.drop_until(std::min(taken_, peer_->acked_));
    // A window that was small is announced again once half of the buffer is free.
    if (state_ == State::open && advertised_ - arrived_ < segment &&
        window_limit() - advertised_ >= receive_buffer_ / 2)
      acknowledge();
    return static_cast<ssize_t>(n);
  }
  if (fin_arrived_ || read_shut_) return 0;
  if (error_ != 0) return -take_error();
  if (state_ == State::failed || state_ == State::closed) return 0;
  return state_ == State::open || state_ == State::connecting ? -EAGAIN : -ENOTCONN;
}

ssize_t SimSocket::write(std::span<const iovec> from) {
  if (error_ != 0) return -take_error();
  if (state_ == State::connecting) return -EAGAIN;
  if (state_ == State::fresh || state_ == State::listening) return -ENOTCONN;
  if (state_ != State::open || fin_queued_) return -EPIPE;
  std::size_t left = room();
  if (left == 0) {
    was_full_ = true;
    return total_bytes(from) == 0 ? 0 : -EAGAIN;
  }
  std::size_t written = 0;
  for (const iovec& part : from) {
    const std::size_t n = std::min(part.iov_len, left);
    out_.append(static_cast<const char*>(part.iov_base), n);
    left -= n;
    written += n;
    if (n < part.iov_len) was_full_ = true;
  }
  push();
  return static_cast<ssize_t>(written);
}

int SimSocket::bind(SimAddress address) {
  if (state_ != State::fresh || local_.port != 0) return -EINVAL;
  if (address.ip != 0 && network_.machine_of(address.ip, machine_) != machine_)
    return -EADDRNOTAVAIL;
  if (const int error = network_.claim(*this, address); error != 0) return error;
  local_ = address;
  return 0;
}

int SimSocket::listen(int backlog) {
  if (state_ == State::listening) return 0;
  if (state_ != State::fresh) return -EINVAL;
  if (local_.port == 0)
    if (const int error = bind({}); error != 0) return error;
  if (network_.is_listened_at(*this)) return -EADDRINUSE;
  state_ = State::listening;
  backlog_ = static_cast<std::size_t>(std::max(backlog, 1));
  return 0;
}

int SimSocket::connect(SimAddress address) {
  if (state_ == State::connecting) return -EALREADY;
  if (state_ == State::open) return -EISCONN;
  if (state_ != State::fresh) return -EINVAL;
  if (address.port == 0) return -ECONNREFUSED;
  if (address.ip == 0) address.ip = 0x7f000001u;
  if (local_.port == 0) {
    SimAddress own{};
    if (const int error = network_.claim(*this, own); error != 0) return error;
    local_ = own;
  }
  if (local_.ip == 0)
    local_.ip = address.ip >> 24 == 127 ? 0x7f000001u : SimNetwork::address_of(machine_);
  remote_ = address;
  state_ = State::connecting;
  began_ = outstanding_since_ = scheduler->now();
  send_packet(syn, 0, 0, header_bytes);
  arm(scheduler->now() + second);
  return -EINPROGRESS;
}

std::shared_ptr<SimSocket> SimSocket::accept() {
  if (queue_.empty()) return nullptr;
  auto result = network_.shared(*queue_.front());
  queue_.pop_front();
  result->listener_ = nullptr;
  return result;
}

int SimSocket::shutdown(int how) {
  if (state_ != State::open) return -ENOTCONN;
  if (how == SHUT_RD || how == SHUT_RDWR) read_shut_ = true;
  if (how == SHUT_WR || how == SHUT_RDWR) fin_queued_ = true;
  push();
  changed(EPOLLIN | EPOLLOUT);
  return 0;
}

void SimSocket::close() {
  network_.release(*this);
  if (state_ == State::listening) {
    state_ = State::closed;
    for (SimSocket* waiting : queue_) waiting->end(true);
    for (SimSocket* half : halves_) half->end(true);
    queue_.clear();
    halves_.clear();
    return;
  }
  if (state_ != State::open) return end(false);
  if (readable() > 0 || (lingers_ && linger_ == 0)) return end(true);
  fin_queued_ = orphan_ = true;
  push();
}

void SimSocket::end(bool send_reset) {
  if (send_reset && peer_ != nullptr) send_packet(reset, 0, 0, header_bytes);
  state_ = State::closed;
  orphan_ = true;
  timer_at_ = never;
}

void SimSocket::fail(int error) {
  if (state_ == State::failed || state_ == State::closed) return;
  if (!orphan_) error_ = error;
  state_ = orphan_ ? State::closed : State::failed;
  timer_at_ = never;
  changed(EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP);
}

void SimSocket::send_packet(std::uint32_t kind, std::uint64_t a, std::uint64_t b,
                            std::size_t bytes) {
  // The first packet has no peer yet: it is an event of its sender.
  network_.deliver(*this, kind == syn ? *this : *peer_, kind, a, b, bytes);
}

void SimSocket::fire(std::uint32_t kind, std::uint64_t a, std::uint64_t b) {
  if (kind == timer) {
    timer_pending_ = never;
    if (timer_at_ == never) return;
    return scheduler->now() < timer_at_ ? arm(timer_at_) : on_timer();
  }
  if (kind == alive) {
    alive_pending_ = never;
    return on_alive();
  }
  const std::size_t far = network_.machine_of(remote_.ip, machine_);
  if (kind == syn) {
    if (network_.is_cut(machine_, far) || state_ != State::connecting) return;
    SimSocket* const listener = network_.listener_at(far, remote_);
    scheduler->note(kind << 16 | machine_, far);
    if (listener != nullptr) return listener->on_syn(*this);
    if (far < network_.size()) network_.deliver_back(*this, reset);
    return;
  }
  if (network_.is_cut(far, machine_)) {
    ++network_.lost;
    return;
  }
  // Addresses of objects differ between runs.
  scheduler->note(kind << 16 | machine_, kind == syn_ack ? far : far << 48 ^ a ^ b << 1);
  last_received_ = last_ack_ = scheduler->now();
  if (kind != data) probes_ = 0;
  switch (kind) {
    case syn_ack: {
      if (state_ != State::connecting) {
        if (state_ == State::open) acknowledge();
        return;
      }
      peer_ = reinterpret_cast<SimSocket*>(a);
      timer_at_ = never;
      if (attempts_ == 0) smooth_ = scheduler->now() - began_, variation_ = smooth_ / 2;
      become_open();
      acknowledge();
      return changed(EPOLLOUT);
    }
    case reset:
      if (state_ == State::accepting) {
        if (listener_ != nullptr) std::erase(listener_->halves_, this);
        return end(false);
      }
      return fail(state_ == State::connecting ? ECONNREFUSED : ECONNRESET);
    case probe:
      if (state_ == State::open) return acknowledge();
      return send_packet(reset, 0, 0, header_bytes);
    case data:
      return on_data(a, b & ~fin_bit, (b & fin_bit) != 0);
    case ack:
    case duplicate_ack:
      if (state_ == State::accepting) become_open();
      if ((a & fin_bit) != 0 && fin_sent_) fin_acked_ = true;
      return on_ack(a & ~fin_bit, b, kind == duplicate_ack);
    default:
      return;
  }
}

void SimSocket::on_syn(SimSocket& client) {
  const auto known = std::find_if(halves_.begin(), halves_.end(),
                                  [&](const SimSocket* half) { return half->peer_ == &client; });
  SimSocket* half = known == halves_.end() ? nullptr : *known;
  if (half != nullptr) {
    ++half->attempts_;
  } else {
    if (client.peer_ != nullptr || queue_.size() + halves_.size() >= backlog_ + 1) return;
    half = network_.open(owner()).get();
    half->state_ = State::accepting;
    half->local_ = client.remote_;
    half->remote_ = client.local_;
    half->peer_ = &client;
    half->listener_ = this;
    half->began_ = scheduler->now();
    half->options_ = options_;
    half->receive_buffer_ = receive_buffer_;
    half->send_buffer_ = send_buffer_;
    halves_.push_back(half);
  }
  half->send_packet(syn_ack, reinterpret_cast<std::uintptr_t>(half), 0, header_bytes);
}

void SimSocket::become_open() {
  const bool accepted = state_ == State::accepting;
  state_ = State::open;
  limit_ = peer_->receive_buffer_;
  advertised_ = window_limit();
  last_received_ = last_ack_ = scheduler->now();
  if (keeps_alive_) arm_alive(last_received_ + alive_idle_);
  if (!accepted) return;
  if (attempts_ == 0) {
    smooth_ = scheduler->now() - began_;
    variation_ = smooth_ / 2;
  }
  std::erase(listener_->halves_, this);
  listener_->queue_.push_back(this);
  listener_->changed(EPOLLIN);
}

void SimSocket::on_data(std::uint64_t begin, std::uint64_t end, bool fin) {
  if (state_ == State::accepting) become_open();
  if (state_ != State::open || (orphan_ && end > arrived_)) {
    send_packet(reset, 0, 0, header_bytes);
    if (state_ == State::open) this->end(false);
    return;
  }
  if (begin > arrived_) return acknowledge(true);
  const std::uint64_t until = std::min(end, window_limit());
  bool news = false;
  if (until > arrived_) {
    arrived_ = until;
    news = true;
  }
  if (fin && !fin_arrived_ && arrived_ == end) fin_arrived_ = news = true;
  acknowledge();
  if (news) changed(EPOLLIN | (fin_arrived_ ? EPOLLRDHUP : 0u));
}

void SimSocket::acknowledge(bool duplicate) {
  advertised_ = window_limit();
  send_packet(duplicate ? duplicate_ack : ack, arrived_ | (fin_arrived_ ? fin_bit : 0), advertised_,
              header_bytes);
}

void SimSocket::on_ack(std::uint64_t until, std::uint64_t limit, bool duplicate) {
  if (state_ != State::open) return;
  const SimTime now = scheduler->now();
  limit_ = std::max(limit_, limit);
  if (until > acked_) {
    if (sample_begin_ != never && until >= sample_end_) {
      const SimTime sample = now - sample_begin_;
      if (smooth_ == 0) smooth_ = sample, variation_ = sample;
      const SimTime difference = sample > smooth_ ? sample - smooth_ : smooth_ - sample;
      variation_ += (difference - variation_) / 4;
      smooth_ += (sample - smooth_) / 8;
      sample_begin_ = never;
    }
    acked_ = until;
    sent_ = std::max(sent_, until);
    retransmits_ = 0;
    probed_tail_ = false;
    outstanding_since_ = now;
    timer_at_ = never;
    out_.drop_until(std::min(acked_, peer_->taken_));
    if (was_full_ && 3 * room() >= send_buffer_) {
      was_full_ = false;
      changed(EPOLLOUT);
    }
  } else if (duplicate && is_outstanding() && acked_ >= recover_) {
    recover_ = sent_;
    sent_ = acked_;
    fin_sent_ = false;
    sample_begin_ = never;
  }
  if (fin_acked_ && fin_arrived_ && orphan_) return end(false);
  if (!is_outstanding() && out_.end() == sent_) timer_at_ = never;
  push();
}

SimTime SimSocket::retransmission_timeout() const {
  if (smooth_ == 0) return second;
  const SimTime base = std::max(least_timeout, smooth_ + 4 * variation_);
  return std::min(base << std::min(retransmits_ + probes_, 10), most_timeout);
}

void SimSocket::push() {
  if (state_ != State::open) return;
  const std::uint64_t limit = std::min(out_.end(), limit_);
  while (sent_ < limit) {
    const std::uint64_t end = std::min(sent_ + segment, limit);
    send_segment(sent_, end);
    sent_ = end;
  }
  if (fin_queued_ && !fin_sent_ && sent_ == out_.end()) send_segment(sent_, sent_);
  if (timer_at_ != never || !(is_outstanding() || out_.end() > sent_)) return;
  outstanding_since_ = scheduler->now();
  // The end of a flight is probed before the timeout.
  const SimTime probe_after = smooth_ == 0 ? second : std::max(2 * smooth_, 10 * millisecond);
  arm(scheduler->now() + std::min(probe_after, retransmission_timeout()));
}

void SimSocket::send_segment(std::uint64_t begin, std::uint64_t end) {
  const bool fin = fin_queued_ && end == out_.end();
  fin_sent_ = fin_sent_ || fin;
  if (sample_begin_ == never && end > begin && retransmits_ == 0 && !probed_tail_) {
    sample_begin_ = scheduler->now();
    sample_end_ = end;
  }
  send_packet(data, begin, end | (fin ? fin_bit : 0),
              header_bytes + static_cast<std::size_t>(end - begin));
}

void SimSocket::arm(SimTime at) {
  timer_at_ = at;
  if (timer_pending_ <= at) return;
  timer_pending_ = at;
  scheduler->schedule(at, *this, timer);
}

void SimSocket::on_timer() {
  const SimTime now = scheduler->now();
  timer_at_ = never;
  if (state_ == State::connecting) {
    ++attempts_;
    const bool timed_out = user_timeout_ > 0 && now - began_ >= user_timeout_;
    if (timed_out || attempts_ > most_attempts) return fail(ETIMEDOUT);
    send_packet(syn, 0, 0, header_bytes);
    const SimTime next = now + (second << attempts_);
    return arm(user_timeout_ > 0 ? std::min(next, began_ + user_timeout_) : next);
  }
  if (state_ != State::open) return;
  const bool zero_window = !is_outstanding() && out_.end() > sent_;
  if (!is_outstanding() && !zero_window) return;
  const bool has_tried = retransmits_ > 0 || probes_ > 0;
  if ((user_timeout_ > 0 && has_tried && now - outstanding_since_ >= user_timeout_) ||
      retransmits_ > most_retransmits)
    return fail(ETIMEDOUT);
  sample_begin_ = never;
  if (zero_window) {
    ++probes_;
    send_packet(probe, 0, 0, header_bytes);
  } else {
    if (probed_tail_) ++retransmits_;
    probed_tail_ = true;
    sent_ = acked_;
    fin_sent_ = false;
    const std::uint64_t end = std::min({out_.end(), std::max(limit_, acked_), acked_ + segment});
    send_segment(sent_, end);
    sent_ = end;
  }
  const SimTime next = now + retransmission_timeout();
  arm(user_timeout_ > 0 ? std::max(now + 1, std::min(next, outstanding_since_ + user_timeout_))
                        : next);
}

void SimSocket::arm_alive(SimTime at) {
  if (alive_pending_ <= at) return;
  alive_pending_ = at;
  scheduler->schedule(at, *this, alive);
}

void SimSocket::on_alive() {
  if (state_ != State::open || !keeps_alive_) return;
  const SimTime now = scheduler->now();
  const std::size_t far = network_.machine_of(remote_.ip, machine_);
  // Over a perfect path the probe of an idle connection is answered.
  if (probes_ == 0 && !is_outstanding() && peer_->state_ == State::open &&
      network_.is_perfect(machine_, far)) {
    last_received_ = std::max(last_received_, now - 2 * network_.options().latency);
    last_ack_ = std::max(last_ack_, last_received_);
  }
  if (is_outstanding() || now - last_received_ < alive_idle_)
    return arm_alive(is_outstanding() ? now + alive_idle_ : last_received_ + alive_idle_);
  const SimTime silent = now - last_received_;
  if (probes_ > 0 && (user_timeout_ > 0 ? silent >= user_timeout_ : probes_ >= alive_count_))
    return fail(ETIMEDOUT);
  ++probes_;
  send_packet(probe, 0, 0, header_bytes);
  arm_alive(now + alive_interval_);
}

int SimSocket::set_option(int level, int name, const void* value, socklen_t size) {
  if (level == SOL_SOCKET && name == SO_LINGER && size >= sizeof(linger)) {
    linger option;
    std::memcpy(&option, value, sizeof option);
    lingers_ = option.l_onoff != 0;
    linger_ = option.l_linger;
    return 0;
  }
  if (level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO) &&
      size >= sizeof(timeval)) {
    timeval time;
    std::memcpy(&time, value, sizeof time);
    const SimTime limit = time.tv_sec * second + time.tv_usec * microsecond;
    (name == SO_RCVTIMEO ? receive_timeout : send_timeout) = limit == 0 ? never : limit;
    return 0;
  }
  if (size < sizeof(int)) return -EINVAL;
  int number;
  std::memcpy(&number, value, sizeof number);
  options_[{level, name}] = number;
  const SimTime seconds = number * second;
  if (level == SOL_SOCKET && name == SO_KEEPALIVE) {
    keeps_alive_ = number != 0;
  } else if (level == SOL_SOCKET && name == SO_REUSEADDR) {
    reuses_ = number != 0;
  } else if (level == SOL_SOCKET && (name == SO_SNDBUF || name == SO_RCVBUF)) {
    const std::size_t bytes = std::max<std::size_t>(2 * static_cast<std::size_t>(number), 4608);
    (name == SO_SNDBUF ? send_buffer_ : receive_buffer_) = bytes;
  } else if (level == IPPROTO_TCP) {
    if (name == TCP_KEEPIDLE) alive_idle_ = seconds;
    if (name == TCP_KEEPINTVL) alive_interval_ = seconds;
    if (name == TCP_KEEPCNT) alive_count_ = number;
    if (name == TCP_USER_TIMEOUT) user_timeout_ = number * millisecond;
  }
  if (keeps_alive_ && state_ == State::open)
    arm_alive(std::max(scheduler->now(), last_received_ + alive_idle_));
  return 0;
}

int SimSocket::get_option(int level, int name, void* value, socklen_t* size) {
  if (level == IPPROTO_TCP && name == TCP_INFO) {
    tcp_info info{};
    info.tcpi_state = state_ == State::open         ? (fin_arrived_  ? TCP_CLOSE_WAIT
                                                       : fin_queued_ ? TCP_FIN_WAIT1
                                                                     : TCP_ESTABLISHED)
                      : state_ == State::listening  ? TCP_LISTEN
                      : state_ == State::connecting ? TCP_SYN_SENT
                                                    : TCP_CLOSE;
    info.tcpi_retransmits = static_cast<std::uint8_t>(std::min(retransmits_, 255));
    info.tcpi_probes = static_cast<std::uint8_t>(std::min(probes_, 255));
    info.tcpi_last_ack_recv =
        static_cast<std::uint32_t>((scheduler->now() - last_ack_) / millisecond);
    info.tcpi_rtt = static_cast<std::uint32_t>(smooth_ / microsecond);
    info.tcpi_unacked = static_cast<std::uint32_t>((sent_ - acked_ + segment - 1) / segment);
    *size = std::min<socklen_t>(*size, sizeof info);
    std::memcpy(value, &info, *size);
    return 0;
  }
  int number = 0;
  if (level == SOL_SOCKET && name == SO_ERROR)
    number = take_error();
  else if (level == SOL_SOCKET && name == SO_TYPE)
    number = SOCK_STREAM;
  else if (level == SOL_SOCKET && name == SO_ACCEPTCONN)
    number = state_ == State::listening ? 1 : 0;
  else if (level == SOL_SOCKET && name == SO_SNDBUF)
    number = static_cast<int>(send_buffer_);
  else if (level == SOL_SOCKET && name == SO_RCVBUF)
    number = static_cast<int>(receive_buffer_);
  else if (const auto known = options_.find({level, name}); known != options_.end())
    number = known->second;
  *size = std::min<socklen_t>(*size, sizeof number);
  std::memcpy(value, &number, *size);
  return 0;
}

}  // namespace lockstep::testing::detail
