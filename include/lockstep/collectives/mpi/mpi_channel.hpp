/// \file
/// One group's messages over MPI. Invariants: no member uses data of an operation before all members
/// have shown that they call the same one; MPI never accesses the caller's memory; every wait polls,
/// so that it is ended by an abort in any process, by an error of MPI, or at its deadline; after the
/// first operation of a size nothing is allocated here.
///
/// Each member sends each other one a frame, with the call and up to `small` bytes of its first
/// transfer, and the others as messages of their own:
///
///     frame   | call: 64 bytes | up to `small` bytes |
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/collectives/algorithms/channel.hpp"
#include "lockstep/collectives/algorithms/collective_call.hpp"
#include "lockstep/collectives/algorithms/shutdown.hpp"
#include "lockstep/collectives/mpi/mpi_communicator.hpp"
#include "lockstep/collectives/mpi/mpi_transfers.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/exchange_progress.hpp"

namespace lockstep::detail {

/// A Channel over MPI, to all other members. The first transfers of an operation with each peer are
/// queued before its first `complete`; a transfer has less than 2^31 bytes.
class MpiChannel {
 public:
  /// MPI libraries send messages of this size without waiting for the receiver.
  static constexpr std::size_t small = 2048;

  /// Duplicates the communicator; all its processes do so in the same order. \throws
  /// CollectiveTimeout, CollectiveError.
  LOCKSTEP_COLD_DECL MpiChannel(const MpiCommunicator& of, std::chrono::nanoseconds timeout,
                                int spins);
  MpiChannel(const MpiChannel&) = delete;
  MpiChannel& operator=(const MpiChannel&) = delete;
  /// Aborts during stack unwinding, so that peers need not wait for the timeout.
  LOCKSTEP_COLD_DECL ~MpiChannel();

  std::size_t rank() const { return rank_; }
  std::size_t size() const { return size_; }
  const std::vector<std::size_t>& peers() const { return peers_; }
  /// Ends the group in all processes; the first cause wins. Callable from any thread.
  LOCKSTEP_COLD_DECL void end(Shutdown::Cause cause, std::size_t rank);
  LOCKSTEP_COLD_DECL ExchangeProgress progress() const;

  LOCKSTEP_DECL void send(std::size_t peer, const std::byte* p, std::size_t n);
  LOCKSTEP_DECL void receive(std::size_t peer, std::byte* p, std::size_t n);
  void complete() { complete(copied_ > most_copied); }
  std::byte* reserve(std::size_t bytes) { return state_->memory.reserve(bytes); }

  /// Runs one operation. Any exception ends the group.
  template <class Body>
  void run(const CollectiveCall& call, const Body& body) {
    try {
      begin(call);
      body();
      complete(true);
    } catch (...) {
      end(Shutdown::Cause::aborted, rank());
      throw;
    }
  }

 private:
  using Transfer = MpiTransfers::Transfer;
  using Tag = MpiTransfers::Tag;
  /// Polls of memory that take as long as a call of MPI_Test.
  static constexpr int polls_per_test = 10;
  static constexpr std::size_t header = 64;
  static constexpr std::size_t stride = header + small;
  static constexpr std::size_t nobody = ~std::size_t{0};
  /// Bytes of copies whose sends may be pending after a `complete`.
  static constexpr std::size_t most_copied = std::size_t{1} << 20;

  /// The state of a peer in an operation.
  struct Peer {
    bool has_frame = false;    ///< this member's frame was sent
    bool has_receive = false;  ///< the first receive was queued
  };
  /// The last copy of p[0..n). Data that go to several peers are copied once.
  struct Copy {
    const std::byte* p = nullptr;
    std::size_t n = 0;
    std::byte* at = nullptr;
  };

  LOCKSTEP_DECL void begin(const CollectiveCall& call);
  /// Completes all transfers or, without `all`, all but sends of copies, on which the next step of an
  /// algorithm does not depend.
  LOCKSTEP_DECL void complete(bool all);
  LOCKSTEP_DECL void send_frame(std::size_t peer, const std::byte* p, std::size_t n);
  /// Waits for all members' frames. \throws UsageError if their calls differ. All members throw it
  /// then, because none leaves before it has sent and received all frames.
  LOCKSTEP_DECL void receive_frames();
  std::byte* frame_of(std::size_t r) { return state_->frames.data() + r * stride; }
  LOCKSTEP_DECL CollectiveCall call_of(std::size_t r);
  /// The index of the transfer that receives the frame of `peer`.
  std::size_t frame_index(std::size_t peer) const { return peer < rank_ ? peer : peer - 1; }

  LOCKSTEP_DECL std::byte* new_copy(std::size_t bytes);
  /// A copy after `room` bytes, which begin with the call.
  LOCKSTEP_DECL const std::byte* copy_of(const std::byte* p, std::size_t n, std::size_t room,
                                         Copy& last);
  LOCKSTEP_DECL void post_send(std::size_t peer, const std::byte* p, std::size_t bytes, Tag tag);
  LOCKSTEP_DECL void post_receive(std::size_t peer, std::byte* p, std::size_t bytes, Tag tag);

  LOCKSTEP_DECL void wait_for(Transfer& transfer, bool for_frame);
  /// Waits until `poll` returns true. \return false at the deadline or after the end of the group,
  /// except by a mismatch if that is ignored.
  template <class Poll>
  bool poll_until(const Poll& poll, bool ignores_mismatch);
  /// Whether the group has ended; reads notices of other members.
  LOCKSTEP_DECL bool has_ended();
  LOCKSTEP_COLD_DECL Shutdown shutdown() const;
  /// \return false if the group has ended before.
  LOCKSTEP_COLD_DECL bool set_ended(const Shutdown& why);

  [[noreturn]] LOCKSTEP_COLD_DECL void throw_ended();
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_lost(std::size_t peer, const char* call, int code);
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_timeout(std::size_t peer, bool for_frame);
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_mismatch(std::size_t other);

  MpiTransfers::Owner state_;
  std::size_t rank_, size_;
  std::vector<std::size_t> peers_;
  std::chrono::nanoseconds timeout_;
  int spins_;
  CollectiveCall call_{};
  std::vector<Peer> queued_;  // by rank
  std::size_t copies_ = 0;    // of the caller's data, in use
  std::size_t copied_ = 0;    // their bytes
  Copy frame_{}, data_{};
  bool has_frames_ = false;
  mutable std::mutex mutex_;
  Shutdown shutdown_{};
  std::atomic<bool> is_down_{false};
  std::atomic<std::uint64_t> done_{0};
  std::atomic<std::size_t> waits_for_{nobody};
};
static_assert(Channel<MpiChannel>);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/mpi/mpi_channel.ipp"
#endif
