/// \file
/// The protocol of one group over MPI. Invariants: no member uses data of an operation before all
/// members have shown that they call the same one; the additions are those of ThreadGroup, so both
/// give the same bits; MPI never accesses the caller's memory; every wait polls, so that it is ended
/// by an abort in any process, by an error of MPI, or at its deadline; after the first operation of
/// a size nothing is allocated here.
///
/// The messages from each member to each other one in an all-reduce, by the size of the data:
///
///     up to `small`       frame: call, data          all members add everything
///     up to `all_add`     frame: call; part: data    all members add everything
///     more, each chunk    frame: call; part  ──>  sum of the own part     (the frame once)
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/collectives/collective_call.hpp"
#include "lockstep/collectives/mpi_communicator.hpp"
#include "lockstep/collectives/mpi_transfers.hpp"
#include "lockstep/collectives/sum_members.hpp"
#include "lockstep/collectives/sum_parts.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/exchange_progress.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep::detail {

/// One member's end of a group. An operation calls `run`, and in its body `send_frames`, then
/// `receive_frames`, `reduce` or `copy`.
class MpiChannel {
 public:
  /// Up to this many bytes per member travel in the frame. MPI libraries send messages of this size
  /// without waiting for the receiver.
  static constexpr std::size_t small = 2048;
  /// Bytes of each member that are exchanged at a time: few enough for the cache, and so that the
  /// timeout applies to progress and not to the operation; MPI's counts, which are ints, suffice.
  static constexpr std::size_t chunk_of(std::size_t size) {
    return std::clamp(size << 17, std::size_t{1} << 20, std::size_t{8} << 20);
  }
  /// Polls that take a few hundred microseconds.
  static constexpr int short_spins = 1000;
  /// Up to this many received bytes, each member adds everything, which saves a message in a row;
  /// of two members up to the other number, since they send as many bytes either way.
  static constexpr std::size_t all_add = std::size_t{64} << 10;
  static constexpr std::size_t both_add = std::size_t{128} << 10;

  /// Duplicates the communicator; all its processes do so in the same order. \throws
  /// CollectiveTimeout, CollectiveError.
  LOCKSTEP_COLD_DECL MpiChannel(const MpiCommunicator& of, std::chrono::nanoseconds timeout,
                                SumOrder order, int spins);
  MpiChannel(const MpiChannel&) = delete;
  MpiChannel& operator=(const MpiChannel&) = delete;
  /// Aborts during stack unwinding, so that peers need not wait for the timeout.
  LOCKSTEP_COLD_DECL ~MpiChannel();

  std::size_t rank() const { return rank_; }
  std::size_t size() const { return size_; }
  /// Ends the group in all processes; the first cause wins. Callable from any thread.
  LOCKSTEP_COLD_DECL void end(MpiEnd::Cause cause, std::size_t rank);
  LOCKSTEP_COLD_DECL ExchangeProgress progress() const;

  /// Runs one operation. Any exception ends the group.
  template <class Body>
  void run(const CollectiveCall& call, const Body& body) {
    call_ = call;
    if (ended_.load(std::memory_order_acquire) != 0) throw_ended();
    try {
      body();
      finish();
    } catch (...) {
      end(MpiEnd::Cause::aborted, rank());
      throw;
    }
  }

  /// The payload of this member's frame, up to `small` bytes.
  std::byte* payload() { return state_->frame.data() + header; }
  /// The payload that member r has sent (also its own). Valid after `receive_frames`.
  const std::byte* payload_of(std::size_t r) { return frame_of(r) + header; }
  /// to[0..bytes) = the sum over the members of payload bytes [at, at + bytes).
  LOCKSTEP_DECL void add_frames(std::byte* to, std::size_t at, std::size_t bytes, SumParts sum);

  /// Sends the call and the first `bytes` of `payload()` to all members.
  LOCKSTEP_DECL void send_frames(std::size_t bytes);
  /// Waits for all members' frames. \throws UsageError if their calls differ. All members throw it
  /// then, because none leaves before it has sent and received all frames.
  LOCKSTEP_DECL void receive_frames();

  /// Replaces p[0..bytes) with the sum over the members: each receives one part from all, adds it,
  /// and sends the sum to all (reduce-scatter, all-gather), or all add everything. Receives the
  /// frames unless `has_frames`.
  LOCKSTEP_DECL void reduce(std::byte* p, std::size_t bytes, SumParts sum, bool has_frames);

  /// Sends from[0..bytes) to all members if this member is among the `senders` from `first_sender`
  /// on, and receives sender i's data at into + i * bytes unless `into` is null. Receives the
  /// frames.
  LOCKSTEP_DECL void copy(const std::byte* from, std::byte* into, std::size_t bytes,
                          std::size_t first_sender, std::size_t senders);

 private:
  using Tag = MpiTransfers::Tag;
  static constexpr std::size_t header = 64;
  static constexpr std::size_t stride = header + small;
  static constexpr std::size_t nobody = ~std::size_t{0};

  std::byte* frame_of(std::size_t r) {
    return r == rank_ ? state_->frame.data() : state_->frames.data() + r * stride;
  }
  LOCKSTEP_DECL CollectiveCall call_of(std::size_t r);
  /// Calls f for the other members, beginning with the next rank, so that not all begin with the same.
  template <class F>
  void for_each_peer(const F& f) const {
    for (std::size_t i = 1; i < size_; ++i) f((rank_ + i) % size_);
  }
  /// Member r's part of a chunk: whole cache lines, so that each part is aligned as the first.
  LOCKSTEP_DECL Slice part(std::size_t bytes, std::size_t r) const;
  /// Bytes, rounded up to cache lines, so that parts of odd sizes are aligned.
  static std::size_t lines_of(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
  /// Sets `parts_` to this member's part and those received, one every `distance` bytes.
  LOCKSTEP_DECL void set_parts(const std::byte* own, const std::byte* others, std::size_t distance);
  LOCKSTEP_DECL std::size_t place_of(std::size_t r) const;
  LOCKSTEP_DECL void exchange_and_add(std::byte* p, std::size_t count, SumParts sum,
                                      bool has_frames);
  LOCKSTEP_DECL void scatter_and_gather(std::byte* p, std::size_t count, SumParts sum,
                                        bool has_frames);

  /// Start a transfer, unless it is empty.
  LOCKSTEP_DECL void send(std::size_t peer, const std::byte* p, std::size_t bytes, Tag tag);
  LOCKSTEP_DECL void receive(std::size_t peer, std::byte* p, std::size_t bytes, Tag tag);

  /// Wait for one transfer, for those with the indices [first, end), and for all.
  LOCKSTEP_DECL void wait_for(std::size_t index, bool for_frame);
  LOCKSTEP_DECL void wait(std::size_t first, std::size_t end);
  LOCKSTEP_DECL void finish();
  /// Waits until `poll` returns true. \return false at the deadline or after the end of the group,
  /// except by a mismatch if that is ignored.
  template <class Poll>
  bool poll_until(const Poll& poll, bool ignores_mismatch);
  /// Whether the group has ended; reads notices of other members.
  LOCKSTEP_DECL bool has_ended();
  LOCKSTEP_COLD_DECL MpiEnd ended() const;
  /// \return false if the group has ended before.
  LOCKSTEP_COLD_DECL bool set_ended(const MpiEnd& why);

  [[noreturn]] LOCKSTEP_COLD_DECL void throw_ended();
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_lost(std::size_t peer, const char* call, int code);
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_timeout(std::size_t peer, bool for_frame);
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_mismatch(std::size_t other);

  MpiTransfers::Owner state_;
  std::size_t rank_, size_;
  std::size_t chunk_;
  std::chrono::nanoseconds timeout_;
  SumOrder order_;
  int spins_;
  CollectiveCall call_{};
  std::vector<const std::byte*> parts_;
  std::atomic<std::uint64_t> ended_{0};  ///< cause and rank of an MpiEnd
  std::atomic<std::uint64_t> done_{0};
  std::atomic<std::size_t> waits_for_{nobody};
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/mpi_channel.ipp"
#endif
