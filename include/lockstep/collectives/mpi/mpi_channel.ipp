#pragma once

#include "lockstep/collectives/mpi/mpi_channel.hpp"

#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "lockstep/collectives/algorithms/spin.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::detail {

MpiChannel::MpiChannel(const MpiCommunicator& of, std::chrono::nanoseconds timeout, int spins)
    : state_(new MpiTransfers(of.rank(), of.size())),
      rank_(of.rank()),
      size_(of.size()),
      // The time waited, up to the timeout and one poll, must not overflow.
      timeout_(std::min<std::chrono::nanoseconds>(timeout, std::chrono::hours(8760))),
      spins_(spins / polls_per_test),
      queued_(size_) {
  static_assert(sizeof(CollectiveCall) <= header);
  if (size_ == 1) return;
  for (std::size_t r = 0; r < size_; ++r)
    if (r != rank_) peers_.push_back(r);
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
  if (std::uncaught_exceptions() > 0) end(Shutdown::Cause::aborted, rank_);
}

bool MpiChannel::set_ended(const Shutdown& why) {
  {
    const std::scoped_lock lock(mutex_);
    if (is_down_) return false;
    shutdown_ = why;
    is_down_ = true;
  }
  note_mpi_failure();
  state_->has_failed = true;
  return true;
}

void MpiChannel::end(Shutdown::Cause cause, std::size_t rank) {
  const Shutdown why{.cause = cause,
                     .rank = static_cast<std::uint32_t>(rank),
                     .by = static_cast<std::uint32_t>(rank_)};
  if (set_ended(why)) state_->send_notices(why);
}

Shutdown MpiChannel::shutdown() const {
  const std::scoped_lock lock(mutex_);
  return shutdown_;
}

bool MpiChannel::has_ended() {
  if (is_down_.load(std::memory_order_acquire)) return true;
  if (size_ == 1 || state_->creation != MPI_REQUEST_NULL) return false;
  const Shutdown why = state_->read_notices();
  if (why.cause != Shutdown::Cause::none) set_ended(why);
  return why.cause != Shutdown::Cause::none;
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

void MpiChannel::begin(const CollectiveCall& call) {
  call_ = call;
  if (is_down_.load(std::memory_order_acquire)) throw_ended();
  std::fill(queued_.begin(), queued_.end(), Peer{});
  has_frames_ = false;
  for (const std::size_t peer : peers_) post_receive(peer, frame_of(peer), stride, Tag::frame_tag);
}

void MpiChannel::send(std::size_t peer, const std::byte* p, std::size_t n) {
  count_sent(n);
  const bool is_first = !queued_[peer].has_frame, fits = is_first && n <= small;
  if (is_first) send_frame(peer, fits ? p : nullptr, fits ? n : 0);
  if (fits || n == 0) return;
  const bool is_copy = !state_->memory.holds(p, n);
  post_send(peer, is_copy ? copy_of(p, n, 0, data_) : p, n, Tag::data_tag);
  state_->transfers.back().is_copy = is_copy;
}

void MpiChannel::send_frame(std::size_t peer, const std::byte* p, std::size_t n) {
  queued_[peer].has_frame = true;
  post_send(peer, copy_of(p, n, header, frame_) - header, header + n, Tag::frame_tag);
  state_->transfers.back().kind = Transfer::Kind::sent_frame;
}

void MpiChannel::receive(std::size_t peer, std::byte* p, std::size_t n) {
  if (!std::exchange(queued_[peer].has_receive, true) && n <= small) {
    Transfer& frame = state_->transfers[frame_index(peer)];
    frame.to = p;
    frame.from = frame_of(peer) + header;
    frame.bytes = n;
    return;
  }
  if (n == 0) return;
  if (state_->memory.holds(p, n)) return post_receive(peer, p, n, Tag::data_tag);
  std::byte* const copy = new_copy(n);
  post_receive(peer, copy, n, Tag::data_tag);
  Transfer& transfer = state_->transfers.back();
  transfer.to = p;
  transfer.from = copy;
  transfer.bytes = n;
}

void MpiChannel::complete(bool all) {
  if (!has_frames_) {
    for (const std::size_t peer : peers_)
      if (!queued_[peer].has_frame) send_frame(peer, nullptr, 0);
    receive_frames();
  }
  for (Transfer& transfer : state_->transfers) {
    if (transfer.is_copy && !all) continue;
    wait_for(transfer, false);
    if (transfer.bytes > 0) std::memcpy(transfer.to, transfer.from, transfer.bytes);
  }
  std::erase_if(state_->transfers, [](const Transfer& transfer) { return transfer.is_done(); });
  if (state_->transfers.empty()) copies_ = copied_ = 0;
  frame_ = data_ = {};
  done_.fetch_add(1, std::memory_order_relaxed);
}

void MpiChannel::receive_frames() {
  std::size_t other = rank_;
  std::exception_ptr error;
  for (std::size_t i = 0; i < peers_.size() && !error; ++i) {
    try {
      wait_for(state_->transfers[i], true);
      if (call_of(peers_[i]) != call_) other = peers_[i];
    } catch (const CollectiveError&) {
      error = std::current_exception();
    }
  }
  if (other != rank_) throw_mismatch(other);
  if (error) std::rethrow_exception(error);
  has_frames_ = true;
  for (Peer& peer : queued_) peer.has_receive = true;  // no later one comes in a frame
}

std::byte* MpiChannel::new_copy(std::size_t bytes) {
  if (copies_ == state_->copies.size()) state_->copies.emplace_back();
  copied_ += bytes;
  return state_->copies[copies_++].reserve(bytes);
}

const std::byte* MpiChannel::copy_of(const std::byte* p, std::size_t n, std::size_t room,
                                     Copy& last) {
  if (last.at != nullptr && last.p == p && last.n == n) return last.at;
  std::byte* const copy = new_copy(room + n);
  if (room > 0) {
    std::memset(copy, 0, room);
    std::memcpy(copy, &call_, sizeof call_);
  }
  if (n > 0) std::memcpy(copy + room, p, n);
  last = {p, n, copy + room};
  return last.at;
}

void MpiChannel::post_send(std::size_t peer, const std::byte* p, std::size_t bytes, Tag tag) {
  Transfer& transfer = state_->transfers.emplace_back(Transfer{.peer = peer});
  const int code = MPI_Isend(p, static_cast<int>(bytes), MPI_BYTE, static_cast<int>(peer), tag,
                             state_->comm, &transfer.request);
  if (code != MPI_SUCCESS) throw_lost(peer, "MPI_Isend", code);
}

void MpiChannel::post_receive(std::size_t peer, std::byte* p, std::size_t bytes, Tag tag) {
  Transfer& transfer = state_->transfers.emplace_back(Transfer{.peer = peer});
  transfer.kind = Transfer::Kind::receive;
  const int code = MPI_Irecv(p, static_cast<int>(bytes), MPI_BYTE, static_cast<int>(peer), tag,
                             state_->comm, &transfer.request);
  if (code != MPI_SUCCESS) throw_lost(peer, "MPI_Irecv", code);
}

void MpiChannel::wait_for(Transfer& transfer, bool for_frame) {
  int code = MPI_SUCCESS;
  const auto is_over = [&] {
    code = transfer.poll();
    return code != MPI_SUCCESS || transfer.is_done();
  };
  if (!is_over()) {
    waits_for_.store(transfer.peer, std::memory_order_relaxed);
    const bool came = poll_until(is_over, for_frame);
    waits_for_.store(nobody, std::memory_order_relaxed);
    if (!came && is_down_.load(std::memory_order_acquire)) throw_ended();
    if (!came) throw_timeout(transfer.peer, for_frame);
  }
  if (code != MPI_SUCCESS) throw_lost(transfer.peer, "MPI_Test", code);
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
    if (has_ended() && !(ignores_mismatch && shutdown().cause == Shutdown::Cause::mismatch))
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
  bool knows_calls = true;  // only the members that have compared them do, and have thrown
  throw_shutdown(shutdown(), call_.name(), rank_, knows_calls);
}

void MpiChannel::throw_lost(std::size_t peer, const char* call, int code) {
  end(Shutdown::Cause::lost, peer);
  throw CollectiveError(
      peer,
      "{}: replica {} lost its connection to replica {} ({}: {}); its process ended, or the "
      "network failed",
      call_.name(), rank_, peer, call, mpi_error_text(code));
}

void MpiChannel::throw_timeout(std::size_t peer, bool for_frame) {
  end(Shutdown::Cause::timed_out, peer);
  std::vector<std::size_t> missing;
  for (const std::size_t r : peers_) {
    const auto is_late = [&](Transfer& frame) {
      return frame.poll() == MPI_SUCCESS && !frame.is_done();
    };
    if (r == peer || (for_frame && is_late(state_->transfers[frame_index(r)])))
      missing.push_back(r);
  }
  throw_late(peer, call_.name(), rank_, timeout_, missing, !for_frame);
}

void MpiChannel::throw_mismatch(std::size_t other) {
  const CollectiveCall theirs = call_of(other);
  try {  // the others need this member's frame to report the same
    for (Transfer& transfer : state_->transfers)
      if (transfer.kind == Transfer::Kind::sent_frame) wait_for(transfer, true);
  } catch (const CollectiveError&) {
  }
  end(Shutdown::Cause::mismatch, other);
  detail::throw_mismatch(other, theirs, rank_, call_);
}

}  // namespace lockstep::detail
