#pragma once

#include "lockstep/collectives/tcp/tcp_link.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "lockstep/core/numbers/crc32c.hpp"

namespace lockstep::detail {

TcpLink::TcpLink(FileDescriptor socket, const std::optional<WireKey>& send_key,
                 const std::optional<WireKey>& receive_key)
    : socket_(std::move(socket)),
      sends_(send_key),
      receives_(receive_key),
      stage_(buffer_bytes),
      buffer_(buffer_bytes) {}

void TcpLink::send_call(const CollectiveCall& call) {
  stage_end_ += sends_.write(RecordHead::Kind::call, reinterpret_cast<const std::byte*>(&call),
                             sizeof call, stage_.data() + stage_end_);
}

void TcpLink::send(const std::byte* p, std::size_t n) {
  if (n > 0) outs_.push_back({p, n});
}

void TcpLink::receive(std::byte* p, std::size_t n) {
  if (n > 0) ins_.push_back({p, n});
}

void TcpLink::fill_stage() {
  const std::size_t overhead = sizeof(RecordHead) + sends_.trailer_bytes();
  while (out_ < outs_.size()) {
    auto& next = outs_[out_];
    const std::size_t room = stage_.size() - stage_end_;
    if ((!sends_.sealed() && next.n >= least_direct) || room <= overhead) return;
    const std::size_t n = std::min({next.n, longest(), room - overhead});
    // A sealed record is not cut short for the rest of the room: it costs as much as a whole one.
    if (n < next.n && n < longest() && stage_end_ > 0) return;
    stage_end_ += sends_.write(RecordHead::Kind::data, next.p, n, stage_.data() + stage_end_);
    next.p += n;
    next.n -= n;
    if (next.n == 0) ++out_;
  }
}

void TcpLink::begin_direct() {
  if (sends_.sealed() || out_ == outs_.size() || outs_[out_].n < least_direct) return;
  auto& next = outs_[out_];
  const std::size_t n = std::min(next.n, longest());
  direct_head_ = {static_cast<std::uint32_t>(n), RecordHead::Kind::data, {}};
  direct_ = next.p;
  direct_crc_ = crc32c(next.p, n, sends_.start_crc(direct_head_));
  direct_left_ = sizeof direct_head_ + n + sizeof direct_crc_;
  next.p += n;
  next.n -= n;
  if (next.n == 0) ++out_;
}

TcpLink::Event TcpLink::write(bool& progress) {
  while (true) {
    if (staged_ == stage_end_ && direct_left_ == 0) {
      staged_ = stage_end_ = 0;
      fill_stage();
      begin_direct();
      if (out_ == outs_.size()) {
        outs_.clear();
        out_ = 0;
      }
      if (stage_end_ == 0 && direct_left_ == 0) return Event::none;
    }
    std::array<iovec, 4> parts;
    std::size_t count = 0, skipped = 0;
    const auto add = [&](const void* p, std::size_t n) {
      const std::size_t skip = std::min(skipped, n);
      skipped -= skip;
      if (n > skip)
        parts[count++] = {const_cast<char*>(static_cast<const char*>(p)) + skip, n - skip};
    };
    if (staged_ < stage_end_) add(stage_.data() + staged_, stage_end_ - staged_);
    if (direct_left_ > 0) {
      const std::size_t whole = sizeof direct_head_ + direct_head_.bytes + sizeof direct_crc_;
      skipped = whole - direct_left_;
      add(&direct_head_, sizeof direct_head_);
      add(direct_, direct_head_.bytes);
      add(&direct_crc_, sizeof direct_crc_);
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const std::ptrdiff_t sent = ::sendmsg(socket(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Event::none;
      return fail(std::generic_category().message(errno));
    }
    progress = true;
    const std::size_t n = static_cast<std::size_t>(sent),
                      from_stage = std::min(n, stage_end_ - staged_);
    staged_ += from_stage;
    direct_left_ -= n - from_stage;
  }
}

TcpLink::Event TcpLink::fail(std::string fact) {
  fact_ = std::move(fact);
  return Event::ended;
}

bool TcpLink::came(std::ptrdiff_t n, bool& progress, Event& event) {
  if (n > 0) {
    progress = true;
    return true;
  }
  if (n == 0)
    event = fail("it was closed");
  else if (errno != EAGAIN && errno != EWOULDBLOCK)
    event = fail(std::generic_category().message(errno));
  return false;
}

bool TcpLink::fill(bool& progress, Event& event) {
  if (buffer_first_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + buffer_first_, buffered());
    buffer_end_ -= std::exchange(buffer_first_, 0);
  }
  std::ptrdiff_t n;
  do {
    n = ::recv(socket(), buffer_.data() + buffer_end_, buffer_.size() - buffer_end_, MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (!came(n, progress, event)) return false;
  buffer_end_ += static_cast<std::size_t>(n);
  return true;
}

bool TcpLink::fill_payload(std::byte* to, bool& progress, Event& event) {
  buffer_first_ = buffer_end_ = 0;  // the payload goes on in the socket, so the buffer is empty
  const std::size_t rest = head_.bytes - received_;
  std::array<iovec, 2> parts{iovec{to, rest}, iovec{buffer_.data(), buffer_.size()}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  std::ptrdiff_t n;
  do {
    n = ::recvmsg(socket(), &message, MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (!came(n, progress, event)) return false;
  const std::size_t payload = std::min(rest, static_cast<std::size_t>(n));
  crc_ = crc32c(to, payload, crc_);
  received_ += payload;
  buffer_end_ = static_cast<std::size_t>(n) - payload;
  return true;
}

bool TcpLink::open_record() {
  std::memcpy(&head_, buffer_.data() + buffer_first_, sizeof head_);
  buffer_first_ += sizeof head_;
  has_head_ = true;
  received_ = 0;
  const bool zeros = head_.zeros[0] == 0 && head_.zeros[1] == 0 && head_.zeros[2] == 0;
  switch (head_.kind) {
    case RecordHead::Kind::call:
      return zeros && head_.bytes == sizeof(CollectiveCall);
    case RecordHead::Kind::notice:
      return zeros && head_.bytes == sizeof(Shutdown);
    case RecordHead::Kind::data:
      if (!receives_.sealed()) crc_ = receives_.start_crc(head_);
      return zeros && head_.bytes > 0 && head_.bytes <= longest();
  }
  return false;
}

bool TcpLink::close_record(std::byte* payload) {
  const bool intact = receives_.read(head_, buffer_.data() + buffer_first_, payload);
  buffer_first_ += head_.bytes + receives_.trailer_bytes();
  has_head_ = false;
  return intact;
}

TcpLink::Event TcpLink::read_data(bool& progress, bool& done) {
  Event event = Event::none;
  auto& next = ins_[in_];
  if (receives_.sealed()) {
    while (!has_body())
      if (!fill(progress, event)) return event;
    if (!close_record(next.p)) return Event::corrupt;
  } else {
    while (received_ < head_.bytes) {
      std::byte* const to = next.p + received_;
      if (const std::size_t n = std::min<std::size_t>(buffered(), head_.bytes - received_); n > 0) {
        std::memcpy(to, buffer_.data() + buffer_first_, n);
        crc_ = crc32c(to, n, crc_);
        buffer_first_ += n;
        received_ += n;
      } else if (!fill_payload(to, progress, event)) {
        return event;
      }
    }
    while (buffered() < sizeof crc_)
      if (!fill(progress, event)) return event;
    const bool intact = std::memcmp(buffer_.data() + buffer_first_, &crc_, sizeof crc_) == 0;
    buffer_first_ += sizeof crc_;
    has_head_ = false;
    if (!intact) return Event::corrupt;
  }
  next.p += head_.bytes;
  next.n -= head_.bytes;
  if (next.n == 0 && ++in_ == ins_.size()) {
    ins_.clear();
    in_ = 0;
  }
  done = true;
  return Event::none;
}

TcpLink::Event TcpLink::read(bool& progress) {
  Event event = Event::none;
  while (reads()) {
    if (!has_head_) {
      if (buffered() < sizeof head_) {
        if (!fill(progress, event)) return event;
        continue;
      }
      if (!open_record()) return Event::corrupt;
    }
    switch (head_.kind) {
      case RecordHead::Kind::notice:
      case RecordHead::Kind::call: {
        const bool is_call = head_.kind == RecordHead::Kind::call;
        if (is_call && !call_pending_) return Event::corrupt;
        if (!has_body()) {
          if (!fill(progress, event)) return event;
          continue;
        }
        if (!close_record(is_call ? reinterpret_cast<std::byte*>(&peers_call_)
                                  : reinterpret_cast<std::byte*>(&notice_)))
          return Event::corrupt;
        if (!is_call) return Event::notice;
        call_pending_ = false;
        return Event::call;
      }
      case RecordHead::Kind::data: {
        if (call_pending_ || head_.bytes > ins_[in_].n) return Event::corrupt;
        bool done = false;
        event = read_data(progress, done);
        if (!done) return event;
        break;
      }
    }
  }
  return Event::none;
}

bool TcpLink::looks_for_notice(Event& event) {
  bool progress = false;
  while (true) {
    if (!has_head_ && buffered() >= sizeof head_) {
      RecordHead head;
      std::memcpy(&head, buffer_.data() + buffer_first_, sizeof head);
      if (head.kind != RecordHead::Kind::notice) return false;  // the peer is ahead
      if (!open_record()) {
        event = Event::corrupt;
        return false;
      }
    }
    if (has_head_ && has_body()) {
      event = close_record(reinterpret_cast<std::byte*>(&notice_)) ? Event::notice : Event::corrupt;
      return false;
    }
    if (!fill(progress, event)) return event == Event::none;
  }
}

bool TcpLink::find_notice() {
  bool progress = false;
  Event event = Event::none;
  // The rest of an open record; a plain data record is counted when it is opened.
  std::size_t skip = has_head_ ? head_.bytes - received_ + receives_.trailer_bytes() : 0;
  bool counted = has_head_ && head_.kind == RecordHead::Kind::data && !receives_.sealed();
  while (true) {
    if (has_head_ && head_.kind == RecordHead::Kind::notice) {
      if (has_body()) return close_record(reinterpret_cast<std::byte*>(&notice_));
    } else if (has_head_) {
      const std::size_t n = std::min(skip, buffered());
      buffer_first_ += n;
      skip -= n;
      if (skip == 0) {
        if (!counted) receives_.skip();
        has_head_ = false;
        continue;
      }
    } else if (buffered() >= sizeof head_) {
      if (!open_record()) return false;
      skip = head_.bytes + receives_.trailer_bytes();
      counted = head_.kind == RecordHead::Kind::data && !receives_.sealed();
      continue;
    }
    if (!fill(progress, event)) return false;
  }
}

void TcpLink::drop_queues() {
  outs_.clear();
  ins_.clear();
  out_ = in_ = 0;
  call_pending_ = false;
}

void TcpLink::queue_notice(const Shutdown& why) {
  stage_end_ += sends_.write(RecordHead::Kind::notice, reinterpret_cast<const std::byte*>(&why),
                             sizeof why, stage_.data() + stage_end_);
}

void TcpLink::end_sending() {
  staged_ = stage_end_ = 0;
  direct_left_ = 0;
  ::shutdown(socket(), SHUT_WR);
}

}  // namespace lockstep::detail
