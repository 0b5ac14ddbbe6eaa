#pragma once

#include "lockstep/collectives/gloo_channel.hpp"

#include <algorithm>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/fmt_core.hpp"

namespace lockstep::detail {

const char* GlooCall::name() const {
  constexpr std::array names{"all_reduce", "broadcast", "all_gather", "barrier"};
  return names[std::min<std::size_t>(static_cast<std::size_t>(operation), names.size() - 1)];
}

std::uint64_t GlooCall::hash() const {
  std::uint64_t h = 0;
  for (const std::uint64_t v : {static_cast<std::uint64_t>(operation), n, m, root, element})
    h = (h ^ v) * 0x9e37'79b9'7f4a'7c15u, h ^= h >> 29;
  return h;
}

template <class F>
void GlooChannel::for_each_peer(const F& f) const {
  mesh_->pairs_.for_each_peer(f);
}

GlooChannel::GlooChannel(std::shared_ptr<GlooMesh> mesh, std::size_t channel,
                         std::chrono::nanoseconds timeout, SumOrder order)
    : mesh_(std::move(mesh)),
      order_(order),
      header_((sizeof(FrameHead) + sizeof(Crc) * mesh_->size() + 63) / 64 * 64),
      stride_(header_ + small),
      frames_(3 * mesh_->size() * stride_),
      checks_(4 * mesh_->size()) {
  wait_.channel = channel;
  wait_.timeout = std::min<std::chrono::nanoseconds>(timeout, std::chrono::hours(8760));
  peers_.resize(size());
  parts_.resize(size());
  ranges_.reserve(max_ranges);  // no reallocation: operations keep references to ranges
  mesh_->add(wait_);
  batch_.on_rejected = [this](std::size_t r, const std::exception_ptr& why) {
    mesh_->record_rejection(wait_, r, why);
  };
  try {
    if (!mesh_->enter()) throw_shutdown();
    for_each_peer([&](std::size_t r) {
      Peer& peer = peers_[r];
      peer.out = mesh_->pairs_.buffer(frame(2, rank()), stride_);
      for (std::size_t parity = 0; parity < 2; ++parity) {
        peer.in[parity] = mesh_->pairs_.buffer(frame(parity, r), stride_);
        // If Gloo rejects it, the first wait throws.
        receive(r, *peer.in[parity], frame_kind, 0, stride_);
      }
      for (std::size_t i = 0; i < 4; ++i)
        peer.checks[i] = mesh_->pairs_.buffer(&check(i, r), sizeof(Crc));
    });
    flush();
    wait_posted();
    mesh_->leave();
  } catch (...) {
    mesh_->remove(wait_);
    throw;
  }
}

void GlooChannel::add_frames(std::byte* to, std::size_t at, std::size_t bytes, SumParts sum) {
  for (std::size_t r = 0; r < size(); ++r) parts_[r] = payload_of(r) + at;
  sum(to, parts_.data(), size(), bytes, order_);
}

void GlooChannel::send_frames(std::size_t bytes, bool later) {
  frame_bytes_ = bytes;
  if (later) return;
  wait_posted();  // Gloo's thread may still be reading the frame
  FrameHead head{0, static_cast<std::uint32_t>(bytes), call_};
  std::byte* const mine = frame(2, rank());
  std::memcpy(mine, &head, sizeof head);
  head.crc = crc32c(mine + sizeof head.crc, header_ + bytes - sizeof head.crc);
  std::memcpy(mine, &head.crc, sizeof head.crc);
  for_each_peer([&](std::size_t r) {
    if (has_frames_) receive(r, *peers_[r].in[parity_ ^ 1u], frame_kind, 0, stride_);
    send(r, *peers_[r].out, frame_kind, 0, header_ + bytes);
  });
}

void GlooChannel::receive_frames() {
  std::size_t other = rank();
  std::exception_ptr error;
  for (std::size_t r = 0; r < size() && !error; ++r) {
    if (r == rank()) continue;
    try {
      wait_recv(r, *peers_[r].in[parity_], true);
      if (!is_intact(frame(parity_, r))) throw_corrupt(r);
      if (call_of(r) != call_) other = r;
    } catch (const CollectiveError&) {
      error = std::current_exception();
    }
  }
  if (other != rank()) {
    if (!error) wait_frames_sent();
    throw_mismatch(other);
  }
  if (error) std::rethrow_exception(error);
  mesh_->count_progress();
}

void GlooChannel::finish() {
  wait_frames_sent();
  parity_ ^= 1u;
  has_frames_ = true;
}

void GlooChannel::reduce(std::byte* p, std::size_t bytes, SumParts sum, bool frames_received) {
  const bool all_add = size() == 2 && bytes <= both_add;
  Range& range = range_of(p, bytes);
  for (std::size_t at = 0; at < bytes; at += chunk) {
    const std::size_t count = std::min(chunk, bytes - at);
    const auto part_of = [&](std::size_t r) { return all_add ? Slice{0, count} : part(count, r); };
    const Slice own = part_of(rank());
    reserve_scratch(own.count * (size() - 1));
    std::size_t index = 0;
    for (std::size_t r = 0; r < size(); ++r)
      parts_[r] = r == rank() ? p + at + own.first : scratch_.data() + own.count * index++;
    for_each_peer([&](std::size_t r) {
      const Slice theirs = part_of(r);
      receive(r, *peers_[r].scratch, part_kind,
              static_cast<std::size_t>(parts_[r] - scratch_.data()), own.count);
      if (!all_add) receive(r, *range.buffers[r], sum_kind, at + theirs.first, theirs.count);
      if (!all_add && theirs.count > 0) expect_check(r, sums_in);
      send(r, *range.buffers[r], part_kind, at + theirs.first, theirs.count);
    });
    const bool in_frames = !frames_received;
    announce(in_frames, [&](std::size_t r) {
      const Slice theirs = part_of(r);
      return crc32c(p + at + theirs.first, theirs.count);
    });
    frames_received = true;
    for (std::size_t r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      if (own.count > 0) wait_recv(r, *peers_[r].scratch);
      compare(r, parts_[r], own.count, announced(r, in_frames));
    }
    if (!in_frames) wait_announced();
    if (all_add) wait_send(1 - rank(), *range.buffers[1 - rank()]);  // the sum overwrites its data
    sum(p + at + own.first, parts_.data(), size(), own.count, order_);
    mesh_->count_progress();
    if (all_add) continue;
    const Crc crc = crc32c(p + at + own.first, own.count);
    for_each_peer([&](std::size_t r) {
      send(r, *range.buffers[r], sum_kind, at + own.first, own.count);
      if (own.count > 0) send_check(r, sums_out, crc);
    });
    for_each_peer([&](std::size_t r) {
      const Slice theirs = part_of(r);
      if (theirs.count > 0) {
        wait_recv(r, *range.buffers[r]);
        wait_recv(r, *peers_[r].checks[sums_in]);
        compare(r, p + at + theirs.first, theirs.count, check(sums_in, r));
        wait_send(r, *range.buffers[r]);
      }
      if (own.count > 0) {
        wait_send(r, *range.buffers[r]);
        wait_send(r, *peers_[r].checks[sums_out]);
      }
    });
    mesh_->count_progress();
  }
}

void GlooChannel::copy(const std::byte* from, std::byte* into, std::size_t bytes,
                       std::size_t first_sender, std::size_t senders) {
  const bool sends = rank() >= first_sender && rank() < first_sender + senders;
  if (ranges_.size() + 2 > max_ranges) release_ranges();
  Range* const out = sends ? &range_of(from, bytes) : nullptr;
  Range* const in = into ? &range_of(into, bytes * senders) : nullptr;
  const auto comes = [&](std::size_t r) {
    return in && r >= first_sender && r < first_sender + senders;
  };
  for (std::size_t at = 0; at < bytes; at += chunk) {
    const std::size_t count = std::min(chunk, bytes - at);
    for_each_peer([&](std::size_t r) {
      if (comes(r)) receive(r, *in->buffers[r], part_kind, (r - first_sender) * bytes + at, count);
      if (out) send(r, *out->buffers[r], part_kind, at, count);
    });
    const bool in_frames = at == 0;
    const Crc crc = out ? crc32c(from + at, count) : 0;
    announce(in_frames, [&](std::size_t) { return crc; }, sends, comes);
    for_each_peer([&](std::size_t r) {
      if (comes(r)) {
        wait_recv(r, *in->buffers[r]);
        compare(r, into + (r - first_sender) * bytes + at, count, announced(r, in_frames));
      }
      if (out) wait_send(r, *out->buffers[r]);
    });
    if (!in_frames && sends) wait_announced();
    mesh_->count_progress();
  }
}

std::uint64_t GlooChannel::slot(std::uint64_t kind) const {
  return gloo_slot(wait_.channel, kind, kind == frame_kind ? 0 : call_.hash());
}

std::byte* GlooChannel::frame(std::size_t set, std::size_t r) {
  return frames_.data() + (set * size() + r) * stride_;
}

std::byte* GlooChannel::part_crc(std::byte* frame, std::size_t r) {
  return frame + sizeof(FrameHead) + r * sizeof(Crc);
}

bool GlooChannel::is_intact(const std::byte* frame) const {
  FrameHead head;
  std::memcpy(&head, frame, sizeof head);
  return head.bytes <= small &&
         head.crc == crc32c(frame + sizeof head.crc, header_ + head.bytes - sizeof head.crc);
}

void GlooChannel::expect_check(std::size_t r, std::size_t set) {
  receive(r, *peers_[r].checks[set], check_kind + set / 2, 0, sizeof(Crc));
}

void GlooChannel::send_check(std::size_t r, std::size_t set, Crc crc) {
  check(set, r) = crc;
  send(r, *peers_[r].checks[set], check_kind + set / 2, 0, sizeof(Crc));
}

template <class CrcFor>
void GlooChannel::announce(bool in_frames, const CrcFor& crc_for) {
  announce(in_frames, crc_for, true, [](std::size_t) { return true; });
}

template <class CrcFor, class Comes>
void GlooChannel::announce(bool in_frames, const CrcFor& crc_for, bool sends, const Comes& comes) {
  for_each_peer([&](std::size_t r) {
    if (in_frames) {
      const Crc crc = sends ? crc_for(r) : 0;
      std::memcpy(part_crc(frame(2, rank()), r), &crc, sizeof crc);
      return;
    }
    if (comes(r)) expect_check(r, parts_in);
    if (sends) send_check(r, parts_out, crc_for(r));
  });
  if (!in_frames) return;
  send_frames(frame_bytes_);
  receive_frames();
}

GlooChannel::Crc GlooChannel::announced(std::size_t r, bool in_frames) {
  if (!in_frames) {
    wait_recv(r, *peers_[r].checks[parts_in]);
    return check(parts_in, r);
  }
  Crc crc = 0;
  std::memcpy(&crc, part_crc(frame(parity_, r), rank()), sizeof crc);
  return crc;
}

void GlooChannel::wait_announced() {
  for_each_peer([&](std::size_t r) { wait_send(r, *peers_[r].checks[parts_out]); });
}

void GlooChannel::compare(std::size_t r, const std::byte* p, std::size_t bytes, Crc crc) {
  if (crc32c(p, bytes) != crc) throw_corrupt(r);
}

void GlooChannel::send(std::size_t r, gloo::transport::UnboundBuffer& buffer, std::uint64_t kind,
                       std::size_t offset, std::size_t bytes) {
  post({GlooPost::Direction::send, r, &buffer, slot(kind), offset, bytes});
}

void GlooChannel::receive(std::size_t r, gloo::transport::UnboundBuffer& buffer, std::uint64_t kind,
                          std::size_t offset, std::size_t bytes) {
  post({GlooPost::Direction::receive, r, &buffer, slot(kind), offset, bytes});
}

void GlooChannel::post(const GlooPost& post) {
  wait_posted();
  if (post.bytes > 0) batch_.posts.push_back(post);
}

void GlooChannel::flush() {
  if (in_flight_ || batch_.posts.empty()) return;
  in_flight_ = true;
  mesh_->pairs_.loop().post(batch_);
}

void GlooChannel::wait_posted() {
  if (!in_flight_) return;
  mesh_->pairs_.loop().wait_posted(batch_);
  in_flight_ = false;
  batch_.posts.clear();
}

GlooCall GlooChannel::call_of(std::size_t r) {
  FrameHead head;
  std::memcpy(&head, frame(parity_, r), sizeof head);
  return head.call;
}

Slice GlooChannel::part(std::size_t bytes, std::size_t r) const {
  const Slice lines = slice_of((bytes + 63) / 64, size(), r);
  const std::size_t first = std::min(bytes, lines.first * 64);
  return {first, std::min(bytes, (lines.first + lines.count) * 64) - first};
}

void GlooChannel::reserve_scratch(std::size_t bytes) {
  if (bytes <= scratch_.size()) return;
  wait_posted();
  for (Peer& peer : peers_) peer.scratch.reset();
  scratch_.resize(bytes);
  for_each_peer([&](std::size_t r) {
    peers_[r].scratch = mesh_->pairs_.buffer(scratch_.data(), scratch_.size());
  });
}

void GlooChannel::release_ranges() {
  wait_posted();
  ranges_.clear();
}

GlooChannel::Range& GlooChannel::range_of(const std::byte* p, std::size_t bytes) {
  for (Range& range : ranges_)
    if (range.p == p && range.bytes == bytes) return range;
  if (ranges_.size() == max_ranges) release_ranges();
  Range range{p, bytes, std::vector<GlooPairs::Buffer>(size())};
  for_each_peer([&](std::size_t r) { range.buffers[r] = mesh_->pairs_.buffer(p, bytes); });
  return ranges_.emplace_back(std::move(range));
}

void GlooChannel::wait_frames_sent() {
  for_each_peer([&](std::size_t r) { wait_send(r, *peers_[r].out); });
}

void GlooChannel::wait_recv(std::size_t r, gloo::transport::UnboundBuffer& buffer,
                            bool waits_for_frame) {
  wait(r, buffer, waits_for_frame, [&] { return buffer.waitRecv(nullptr, no_timeout); });
}

void GlooChannel::wait_send(std::size_t r, gloo::transport::UnboundBuffer& buffer) {
  wait(r, buffer, false, [&] { return buffer.waitSend(nullptr, no_timeout); });
}

template <class F>
void GlooChannel::wait(std::size_t r, gloo::transport::UnboundBuffer& buffer, bool waits_for_frame,
                       const F& f) {
  flush();
  if (!mesh_->begin_wait(wait_, r, buffer)) throw_wait_failure();
  bool came = false;
  call_gloo(r, [&](int) { came = f(); });
  mesh_->finish_wait(wait_);
  // A wait that the watch thread aborted counts as failed even if the data came: the abort would
  // otherwise end the buffer's next wait.
  if (came && !wait_.is_late && !wait_.is_lost) return;
  if (wait_.is_late) throw_timeout(r, waits_for_frame);
  if (wait_.is_lost) throw_lost(r, "it was closed");
  throw_wait_failure();
}

void GlooChannel::throw_wait_failure() {
  if (const std::exception_ptr why = mesh_->rejection(wait_))
    call_gloo(wait_.rejected_peer, [&](int) { std::rethrow_exception(why); });
  throw_shutdown();
}

template <class F>
void GlooChannel::call_gloo(std::size_t r, const F& f) {
  std::string fact;
  try {
    return f(static_cast<int>(r));
  } catch (const std::bad_alloc&) {
    mesh_->finish_wait(wait_);
    throw;
  } catch (const std::exception& e) {
    fact = gloo_fact(e);
  }
  mesh_->finish_wait(wait_);
  throw_lost(r, fact);
}

void GlooChannel::throw_shutdown() {
  const GlooShutdown end = mesh_->shutdown();
  if (end.cause == GlooShutdown::Cause::dead_link)
    throw LinkFailed(call_.name(), end.rank, end.by,
                     fmt::format("no data sent over it was acknowledged for {} ms",
                                 mesh_->pairs_.links().limit().count()));
  if (end.cause == GlooShutdown::Cause::corrupt)
    throw LinkFailed(call_.name(), end.rank, end.by,
                     "data arrived corrupted (CRC32C mismatch); a network card, a cable or memory "
                     "is faulty");
  const std::string_view why =
      end.cause == GlooShutdown::Cause::timed_out  ? "a replica did not arrive in time"
      : end.cause == GlooShutdown::Cause::lost     ? "a replica was lost"
      : end.cause == GlooShutdown::Cause::mismatch ? "the replicas' calls differed"
                                                   : "another replica failed";
  throw CollectiveAborted(
      end.rank, "{}: replica {} stopped because {}{}", call_.name(), rank(), why,
      end.cause == GlooShutdown::Cause::lost || end.cause == GlooShutdown::Cause::timed_out
          ? fmt::format(" ({})", end.rank)
          : std::string());
}

void GlooChannel::throw_corrupt(std::size_t r) {
  mesh_->shut_down(GlooShutdown::Cause::corrupt, r);
  throw_shutdown();
}

void GlooChannel::throw_lost(std::size_t r, std::string_view fact) {
  if (mesh_->shutdown().cause == GlooShutdown::Cause::aborted) throw_shutdown();
  const GlooShutdown notice = mesh_->read_notice(r);
  if (notice.cause == GlooShutdown::Cause::none) {
    mesh_->shut_down(GlooShutdown::Cause::lost, r);
    throw CollectiveError(
        r,
        "{}: replica {} lost its connection to replica {} ({}); its process ended, or the network "
        "failed",
        call_.name(), rank(), r, fact);
  }
  mesh_->shut_down(notice);
  throw_shutdown();
}

void GlooChannel::throw_timeout(std::size_t r, bool waits_for_frame) {
  mesh_->shut_down(GlooShutdown::Cause::timed_out, r);
  std::string missing = std::to_string(r);
  for (std::size_t other = r + 1; other < size() && waits_for_frame; ++other) {
    if (other == rank()) continue;
    auto& frame = *peers_[other].in[parity_];
    const auto moment = std::chrono::steady_clock::now() + std::chrono::milliseconds(10);
    const bool has_arrived = mesh_->wait_until(moment, other, frame,
                                               [&] { return frame.waitRecv(nullptr, no_timeout); });
    if (!has_arrived) missing += fmt::format(", {}", other);
  }
  throw CollectiveTimeout(
      r, "{}: replica {} waited {} ms for replica {}{}; it hangs, or it needs a longer timeout",
      call_.name(), rank(),
      std::chrono::duration_cast<std::chrono::milliseconds>(wait_.timeout).count(), missing,
      waits_for_frame ? ", which did not arrive" : ", which arrived and then stopped");
}

void GlooChannel::throw_mismatch(std::size_t other) {
  mesh_->shut_down(GlooShutdown::Cause::mismatch, other);
  const GlooCall a = call_of(other), b = call_;
  throw UsageError(
      "gloo group: replica {} calls {} of {} elements of {} bytes, replica {} calls {} of {} "
      "elements of {} bytes; all replicas must make the same calls in the same order",
      other, a.name(), a.n, a.element, rank(), b.name(), b.n, b.element);
}

}  // namespace lockstep::detail
