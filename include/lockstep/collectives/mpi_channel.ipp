#pragma once

#include "lockstep/collectives/mpi_channel.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <string_view>
#include <thread>

#include "lockstep/collectives/spin.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

MpiChannel::MpiChannel(const MpiCommunicator& of, std::chrono::nanoseconds timeout, SumOrder order,
                       int spins)
    : state_(new MpiTransfers(of.rank(), of.size())),
      rank_(of.rank()),
      size_(of.size()),
      chunk_(chunk_of(size_)),
      // The time waited, up to the timeout and one poll, must not overflow.
      timeout_(std::min<std::chrono::nanoseconds>(timeout, std::chrono::hours(8760))),
      order_(order),
      spins_(spins),
      parts_(size_) {
  static_assert(sizeof(CollectiveCall) <= header);
  std::memset(state_->frame.reserve(stride), 0, stride);
  if (size_ == 1) return;
  state_->frames.reserve(size_ * stride);
  check_mpi(MPI_Comm_idup(of.get(), &state_->comm, &state_->creation), "MPI_Comm_idup");
  int code = MPI_SUCCESS;
  const auto is_created = [&] {
    int done = 0;
    code = MPI_Test(&state_->creation, &done, MPI_STATUS_IGNORE);
    return done != 0 || code != MPI_SUCCESS;
  };
  if (!poll_until(is_created, false)) {
    note_mpi_failure();
    throw CollectiveTimeout(
        "mpi group: replica {} waited {} ms for the other replicas to construct the same group; "
        "one hangs, or it needs a longer timeout",
        rank_, std::chrono::duration_cast<std::chrono::milliseconds>(timeout_).count());
  }
  check_mpi(code, "MPI_Comm_idup");
  check_mpi(MPI_Comm_set_errhandler(state_->comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

MpiChannel::~MpiChannel() {
  if (std::uncaught_exceptions() > 0) end(MpiEnd::Cause::aborted, rank_);
}

bool MpiChannel::set_ended(const MpiEnd& why) {
  std::uint64_t none = 0;
  if (!ended_.compare_exchange_strong(
          none, std::uint64_t{static_cast<std::uint32_t>(why.cause)} << 32 | why.rank))
    return false;
  note_mpi_failure();
  state_->has_failed = true;
  return true;
}

void MpiChannel::end(MpiEnd::Cause cause, std::size_t rank) {
  const MpiEnd why{cause, static_cast<std::uint32_t>(rank)};
  if (set_ended(why)) state_->send_notices(why);
}

MpiEnd MpiChannel::ended() const {
  const std::uint64_t word = ended_.load(std::memory_order_acquire);
  return {static_cast<MpiEnd::Cause>(word >> 32), static_cast<std::uint32_t>(word)};
}

bool MpiChannel::has_ended() {
  if (ended_.load(std::memory_order_acquire) != 0) return true;
  if (size_ == 1 || state_->creation != MPI_REQUEST_NULL) return false;
  const MpiEnd why = state_->read_notices();
  if (why.cause != MpiEnd::Cause::none) set_ended(why);
  return why.cause != MpiEnd::Cause::none;
}

ExchangeProgress MpiChannel::progress() const {
  ExchangeProgress now{done_.load(std::memory_order_relaxed), {}};
  const std::size_t peer = waits_for_.load(std::memory_order_relaxed);
  if (peer != nobody) now.waits_for = peer;
  return now;
}

CollectiveCall MpiChannel::call_of(std::size_t r) {
  CollectiveCall call;
  std::memcpy(&call, frame_of(r), sizeof call);
  return call;
}

void MpiChannel::add_frames(std::byte* to, std::size_t at, std::size_t bytes, SumParts sum) {
  for (std::size_t r = 0; r < size_; ++r) parts_[r] = payload_of(r) + at;
  sum(to, parts_.data(), size_, bytes, order_);
}

void MpiChannel::send_frames(std::size_t bytes) {
  std::memcpy(state_->frame.data(), &call_, sizeof call_);
  for_each_peer([&](std::size_t r) { receive(r, frame_of(r), stride, Tag::frame_tag); });
  for_each_peer(
      [&](std::size_t r) { send(r, state_->frame.data(), header + bytes, Tag::frame_tag); });
}

void MpiChannel::receive_frames() {
  std::size_t other = rank_;
  std::exception_ptr error;
  for (std::size_t i = 0; i + 1 < size_ && !error; ++i) {
    try {
      wait_for(i, true);
      const std::size_t peer = state_->transfers[i].peer;
      if (call_of(peer) != call_) other = peer;
    } catch (const CollectiveError&) {
      error = std::current_exception();
    }
  }
  if (other != rank_) throw_mismatch(other);
  if (error) std::rethrow_exception(error);
  done_.fetch_add(1, std::memory_order_relaxed);
}

void MpiChannel::reduce(std::byte* p, std::size_t bytes, SumParts sum, bool has_frames) {
  if (bytes == 0) return;
  const bool all_add_this = bytes * (size_ - 1) <= (size_ == 2 ? both_add : all_add);
  if (all_add_this) return exchange_and_add(p, bytes, sum, has_frames);
  for (std::size_t at = 0; at < bytes; at += chunk_)
    scatter_and_gather(p + at, std::min(chunk_, bytes - at), sum, has_frames || at > 0);
}

void MpiChannel::exchange_and_add(std::byte* p, std::size_t count, SumParts sum, bool has_frames) {
  const std::size_t first = state_->transfers.size();
  std::byte* const in = state_->in.reserve(lines_of(count) * (size_ - 1));
  std::byte* const out = state_->out.reserve(count);
  set_parts(p, in, lines_of(count));
  for_each_peer(
      [&](std::size_t r) { receive(r, in + lines_of(count) * place_of(r), count, Tag::part_tag); });
  std::memcpy(out, p, count);
  for_each_peer([&](std::size_t r) { send(r, out, count, Tag::part_tag); });
  if (!has_frames) receive_frames();
  wait(first, first + size_ - 1);
  sum(p, parts_.data(), size_, count, order_);
  wait(first, state_->transfers.size());
  done_.fetch_add(1, std::memory_order_relaxed);
}

void MpiChannel::scatter_and_gather(std::byte* p, std::size_t count, SumParts sum,
                                    bool has_frames) {
  const std::size_t first = state_->transfers.size();
  const Slice own = part(count, rank_);
  const std::size_t lines = lines_of(own.count);
  std::byte* const in = state_->in.reserve(lines * (size_ - 1));
  std::byte* const out = state_->out.reserve(count);
  std::byte* const sums = state_->sums.reserve(count);
  set_parts(p + own.first, in, lines);
  for_each_peer(
      [&](std::size_t r) { receive(r, in + lines * place_of(r), own.count, Tag::part_tag); });
  const std::size_t parts_end = state_->transfers.size();
  for_each_peer([&](std::size_t r) {
    const Slice theirs = part(count, r);
    receive(r, sums + theirs.first, theirs.count, Tag::sum_tag);
  });
  const std::size_t sums_end = state_->transfers.size();
  for_each_peer([&](std::size_t r) {
    const Slice theirs = part(count, r);
    std::memcpy(out + theirs.first, p + theirs.first, theirs.count);
    send(r, out + theirs.first, theirs.count, Tag::part_tag);
  });
  if (!has_frames) receive_frames();
  wait(first, parts_end);
  std::byte* const own_sum = out + own.first;
  sum(own_sum, parts_.data(), size_, own.count, order_);
  for_each_peer([&](std::size_t r) { send(r, own_sum, own.count, Tag::sum_tag); });
  std::memcpy(p + own.first, own_sum, own.count);
  for (std::size_t i = parts_end; i < sums_end; ++i) {
    wait_for(i, false);
    const Slice theirs = part(count, state_->transfers[i].peer);
    std::memcpy(p + theirs.first, sums + theirs.first, theirs.count);
  }
  wait(first, state_->transfers.size());  // the next chunk overwrites these buffers
  done_.fetch_add(1, std::memory_order_relaxed);
}

void MpiChannel::copy(const std::byte* from, std::byte* into, std::size_t bytes,
                      std::size_t first_sender, std::size_t senders) {
  const auto is_sender = [&](std::size_t r) {
    return r >= first_sender && r < first_sender + senders;
  };
  const std::size_t piece = std::max(chunk_ / senders, std::size_t{64} << 10);
  for (std::size_t at = 0; at < bytes; at += piece) {
    const std::size_t count = std::min(piece, bytes - at), first = state_->transfers.size();
    std::byte* const in = state_->in.reserve(piece * senders);
    for_each_peer([&](std::size_t r) {
      if (into && is_sender(r)) receive(r, in + (r - first_sender) * piece, count, Tag::part_tag);
    });
    const std::size_t receives_end = state_->transfers.size();
    if (is_sender(rank_)) {
      std::byte* const out = state_->out.reserve(count);
      std::memcpy(out, from + at, count);
      for_each_peer([&](std::size_t r) { send(r, out, count, Tag::part_tag); });
    }
    if (at == 0) receive_frames();
    for (std::size_t i = first; i < receives_end; ++i) {
      wait_for(i, false);
      const std::size_t sender = state_->transfers[i].peer - first_sender;
      std::memcpy(into + sender * bytes + at, in + sender * piece, count);
    }
    wait(first, state_->transfers.size());
    done_.fetch_add(1, std::memory_order_relaxed);
  }
}

/// The rank of another member among the others.
std::size_t MpiChannel::place_of(std::size_t r) const { return r < rank_ ? r : r - 1; }

void MpiChannel::set_parts(const std::byte* own, const std::byte* others, std::size_t distance) {
  for (std::size_t r = 0; r < size_; ++r)
    parts_[r] = r == rank_ ? own : others + distance * place_of(r);
}

Slice MpiChannel::part(std::size_t bytes, std::size_t r) const {
  const Slice lines = slice_of((bytes + 63) / 64, size_, r);
  const std::size_t first = std::min(bytes, lines.first * 64);
  return {first, std::min(bytes, (lines.first + lines.count) * 64) - first};
}

void MpiChannel::send(std::size_t peer, const std::byte* p, std::size_t bytes, Tag tag) {
  if (bytes == 0) return;
  MpiTransfers::Transfer& transfer = state_->transfers.emplace_back(MpiTransfers::Transfer{peer});
  const int code = MPI_Isend(p, static_cast<int>(bytes), MPI_BYTE, static_cast<int>(peer), tag,
                             state_->comm, &transfer.request);
  if (code != MPI_SUCCESS) throw_lost(peer, "MPI_Isend", code);
}

void MpiChannel::receive(std::size_t peer, std::byte* p, std::size_t bytes, Tag tag) {
  if (bytes == 0) return;
  MpiTransfers::Transfer& transfer = state_->transfers.emplace_back(MpiTransfers::Transfer{peer});
  transfer.is_receive = true;
  const int code = MPI_Irecv(p, static_cast<int>(bytes), MPI_BYTE, static_cast<int>(peer), tag,
                             state_->comm, &transfer.request);
  if (code != MPI_SUCCESS) throw_lost(peer, "MPI_Irecv", code);
}

void MpiChannel::wait_for(std::size_t index, bool for_frame) {
  MpiTransfers::Transfer& transfer = state_->transfers[index];
  int code = MPI_SUCCESS;
  const auto is_over = [&] {
    code = transfer.poll();
    return code != MPI_SUCCESS || transfer.is_done();
  };
  if (!is_over()) {
    waits_for_.store(transfer.peer, std::memory_order_relaxed);
    const bool came = poll_until(is_over, for_frame);
    waits_for_.store(nobody, std::memory_order_relaxed);
    if (!came && ended_.load(std::memory_order_acquire) != 0) throw_ended();
    if (!came) throw_timeout(transfer.peer, for_frame);
  }
  if (code != MPI_SUCCESS) throw_lost(transfer.peer, "MPI_Test", code);
}

void MpiChannel::wait(std::size_t first, std::size_t end) {
  for (std::size_t i = first; i < end; ++i) wait_for(i, false);
}

void MpiChannel::finish() {
  wait(0, state_->transfers.size());
  state_->transfers.clear();
  done_.fetch_add(1, std::memory_order_relaxed);
}

// A sleep is an eighth of the time waited, so that it adds little to a wait of any length. Time in
// which this process was suspended (Ctrl-Z, a debugger, a frozen container) does not count.
template <class Poll>
bool MpiChannel::poll_until(const Poll& poll, bool ignores_mismatch) {
  using clock = std::chrono::steady_clock;
  using std::chrono::nanoseconds;
  constexpr nanoseconds shortest = std::chrono::microseconds(20),
                        longest = std::chrono::milliseconds(1);
  constexpr nanoseconds too_long = std::chrono::milliseconds(200);
  if (spin_until(spins_, poll)) return true;
  nanoseconds waited{0};
  for (auto last = clock::now(); waited < timeout_;) {
    if (has_ended() && !(ignores_mismatch && ended().cause == MpiEnd::Cause::mismatch))
      return poll();
    std::this_thread::sleep_for(std::clamp<nanoseconds>(waited / 8, shortest, longest));
    if (poll()) return true;
    const auto now = clock::now();
    const nanoseconds gap = now - std::exchange(last, now);
    waited += gap > too_long ? longest : gap;
  }
  return false;
}

void MpiChannel::throw_ended() {
  const MpiEnd why = ended();
  using Cause = MpiEnd::Cause;
  throw CollectiveAborted(
      std::size_t{why.rank}, "{}: replica {} stopped because {}", call_.name(), rank_,
      why.cause == Cause::lost ? format_text("replica {} was lost", why.rank)
      : why.cause == Cause::timed_out
          ? format_text("a replica did not arrive in time ({})", why.rank)
      : why.cause == Cause::mismatch ? std::string("the replicas' calls differed")
                                     : std::string("another replica failed"));
}

void MpiChannel::throw_lost(std::size_t peer, const char* call, int code) {
  end(MpiEnd::Cause::lost, peer);
  throw CollectiveError(
      peer,
      "{}: replica {} lost its connection to replica {} ({}: {}); its process ended, or the "
      "network failed",
      call_.name(), rank_, peer, call, mpi_error_text(code));
}

void MpiChannel::throw_timeout(std::size_t peer, bool for_frame) {
  end(MpiEnd::Cause::timed_out, peer);
  std::string missing;
  for (std::size_t r = 0; r < size_; ++r) {
    bool is_missing = r == peer;
    for (std::size_t i = 0; for_frame && i + 1 < size_ && !is_missing; ++i) {
      MpiTransfers::Transfer& frame = state_->transfers[i];
      is_missing = frame.peer == r && frame.poll() == MPI_SUCCESS && !frame.is_done();
    }
    if (is_missing) missing += format_text("{}{}", missing.empty() ? "" : ", ", r);
  }
  throw CollectiveTimeout(
      peer, "{}: replica {} waited {} ms for replica {}{}; it hangs, or it needs a longer timeout",
      call_.name(), rank_, std::chrono::duration_cast<std::chrono::milliseconds>(timeout_).count(),
      missing, for_frame ? ", which did not arrive" : ", which arrived and then stopped");
}

void MpiChannel::throw_mismatch(std::size_t other) {
  const CollectiveCall theirs = call_of(other);
  try {  // the others need this member's frame to report the same
    for (std::size_t i = size_ - 1; i < 2 * (size_ - 1); ++i) wait_for(i, true);
  } catch (const CollectiveError&) {
  }
  end(MpiEnd::Cause::mismatch, other);
  throw UsageError(
      "mpi group: replica {} calls {}, replica {} calls {}; all replicas must make the same calls "
      "in the same order",
      other, theirs.text(), rank_, call_.text());
}

}  // namespace lockstep::detail
