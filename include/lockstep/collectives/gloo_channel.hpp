/// \file
/// One channel of a Gloo mesh: the wire protocol of one group. Invariants: no member waits for the
/// data of an operation before all members have shown that they call the same one; no message is
/// longer than the buffer that receives it, because the tag of data is derived from the call; data
/// is compared with the sender's CRC32C before it is used; Gloo no longer accesses a member's
/// memory when its operation returns or throws; after the first operation of a kind and size
/// nothing is allocated here.
///
/// The messages from each member to each other one in an all-reduce, by the size of the data:
///
///     up to `small`      frame: call, data                  all members add everything
///     up to `both_add`   frame: call, CRC32C; part: data    of two members, both add everything
///     more, chunk 1      frame: call, CRC32C; part  ──>  sum of the own part; check: its CRC32C
///           chunk 2...   check: CRC32C;       part  ──>  sum of the own part; check: its CRC32C
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "lockstep/collectives/gloo_mesh.hpp"
#include "lockstep/collectives/sum_members.hpp"
#include "lockstep/collectives/sum_parts.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep::detail {

/// The arguments of an operation; all members' must be equal.
struct GlooCall {
  enum class Operation : std::uint64_t { all_reduce, broadcast, all_gather, barrier };
  Operation operation{};
  std::uint64_t n = 0, m = 0, root = 0, element = 0;

  bool operator==(const GlooCall&) const = default;
  /// The operation's name, for error messages.
  LOCKSTEP_DECL const char* name() const;
  /// The part of a data message's tag that distinguishes calls; 48 bits of it are used.
  LOCKSTEP_DECL std::uint64_t hash() const;
};

/// One member's end of a channel. An operation calls `run`, and in its body `send_frames`, then
/// `receive_frames`, `reduce` or `copy`, and `finish`.
class GlooChannel {
 public:
  /// Up to this many bytes per member travel in the frame; more are sent in parts.
  static constexpr std::size_t small = 65536;
  /// Bytes exchanged at a time, so that the timeout applies to progress and not to the operation.
  static constexpr std::size_t chunk = std::size_t{8} << 20;

  /// Up to this many bytes, two members each send everything and both add: waiting for a second
  /// message would cost more than adding twice as many elements.
  static constexpr std::size_t both_add = std::size_t{512} << 10;

  /// Registers the channel and posts the receives of the first frames.
  LOCKSTEP_DECL GlooChannel(std::shared_ptr<GlooMesh> mesh, std::size_t channel,
                            std::chrono::nanoseconds timeout, SumOrder order);
  GlooChannel(const GlooChannel&) = delete;
  GlooChannel& operator=(const GlooChannel&) = delete;
  ~GlooChannel() { mesh_->remove(wait_); }

  std::size_t rank() const { return mesh_->rank(); }
  std::size_t size() const { return mesh_->size(); }
  void abort() { mesh_->abort(); }

  /// Runs one operation. Any exception shuts the mesh down.
  template <class Body>
  void run(const GlooCall& call, const Body& body) {
    call_ = call;
    if (!mesh_->enter()) throw_shutdown();
    try {
      body();
      wait_posted();
    } catch (...) {
      mesh_->shut_down(GlooShutdown::Cause::aborted, rank());
      wait_posted();
      batch_.posts.clear();
      ranges_.clear();
      mesh_->leave();
      throw;
    }
    mesh_->count_progress();
    mesh_->leave();
  }

  /// The payload of this member's frame, up to `small` bytes.
  std::byte* payload() { return frame(2, rank()) + header_; }
  /// The payload that member r has sent (also its own). Valid from `receive_frames` to `finish`.
  const std::byte* payload_of(std::size_t r) {
    return frame(r == rank() ? 2 : parity_, r) + header_;
  }
  /// to[0..bytes) = the sum over the members of payload bytes [at, at + bytes).
  LOCKSTEP_DECL void add_frames(std::byte* to, std::size_t at, std::size_t bytes, SumParts sum);

  /// Sends the call and the first `bytes` of `payload()` to all members: now, or if `later`, when
  /// `reduce` or `copy` has computed the CRC32C of the data that follows.
  LOCKSTEP_DECL void send_frames(std::size_t bytes, bool later = false);

  /// Waits for all members' frames. \throws UsageError if their calls differ. All members throw it
  /// then, because none leaves before it has sent and received all frames.
  LOCKSTEP_DECL void receive_frames();

  /// Call after the last access to the frames: the next operation's `send_frames` posts them for
  /// receiving again. Two sets in turn suffice, because a member sends the frame after the next
  /// only when it has received the next.
  LOCKSTEP_DECL void finish();

  /// Replaces p[0..bytes) with the sum over the members: each receives one part from all, adds it,
  /// and sends the sum to all (reduce-scatter, all-gather). Up to `both_add` bytes, two members
  /// exchange everything and both add: as many bytes, half the messages. Receives the frames unless
  /// `frames_received`. The CRC32C of the first chunk's parts travel in the frames, those of later
  /// chunks in separate messages.
  LOCKSTEP_DECL void reduce(std::byte* p, std::size_t bytes, SumParts sum, bool frames_received);

  /// Sends from[0..bytes) to all members if this member is among the `senders` from `first_sender`
  /// on, and receives sender i's data at into + i * bytes unless `into` is null.
  LOCKSTEP_DECL void copy(const std::byte* from, std::byte* into, std::size_t bytes,
                          std::size_t first_sender, std::size_t senders);

 private:
  static constexpr std::uint64_t frame_kind = 1, part_kind = 2, sum_kind = 3, check_kind = 4;
  static constexpr std::size_t max_ranges = 256;

  using Crc = std::uint32_t;
  /// Sets of `checks_`, the buffers of messages that carry only a CRC32C: those of sums, and those
  /// of parts whose CRC32C did not travel in a frame.
  static constexpr std::size_t sums_out = 0, sums_in = 1, parts_out = 2, parts_in = 3;

  // A frame:
  //
  //     FrameHead | CRC32C of the part for each rank | `bytes` of the operation
  //     0                                            header_               header_ + small
  struct FrameHead {
    Crc crc = 0;              ///< of all bytes after it
    std::uint32_t bytes = 0;  ///< after the header
    GlooCall call{};
  };

  /// The buffers for one peer: frames, its part of this member's sum, checks.
  struct Peer {
    GlooPairs::Buffer out, scratch;
    std::array<GlooPairs::Buffer, 2> in;
    std::array<GlooPairs::Buffer, 4> checks;
  };
  /// Memory of the caller that is registered with Gloo: one buffer per peer, so that an error names
  /// the peer.
  struct Range {
    const std::byte* p = nullptr;
    std::size_t bytes = 0;
    std::vector<GlooPairs::Buffer> buffers;
  };

  /// The tag of a message of this channel; that of a frame does not depend on the call.
  LOCKSTEP_DECL std::uint64_t slot(std::uint64_t kind) const;
  /// Rank r's frame of a set. Sets 0 and 1 are received in turn, set 2 is sent.
  LOCKSTEP_DECL std::byte* frame(std::size_t set, std::size_t r);
  /// The place in a frame of the CRC32C of the part for rank r.
  LOCKSTEP_DECL static std::byte* part_crc(std::byte* frame, std::size_t r);
  /// Whether the frame's length and CRC32C are right.
  LOCKSTEP_DECL bool is_intact(const std::byte* frame) const;

  Crc& check(std::size_t set, std::size_t r) { return checks_[set * size() + r]; }
  LOCKSTEP_DECL void expect_check(std::size_t r, std::size_t set);
  LOCKSTEP_DECL void send_check(std::size_t r, std::size_t set, Crc crc);

  /// Sends each peer the CRC32C of its part: in the frame (then also receives the frames), or in a
  /// separate message.
  template <class CrcFor>
  void announce(bool in_frames, const CrcFor& crc_for);
  template <class CrcFor, class Comes>
  void announce(bool in_frames, const CrcFor& crc_for, bool sends, const Comes& comes);
  /// The CRC32C that r has sent for its part to this member.
  LOCKSTEP_DECL Crc announced(std::size_t r, bool in_frames);
  /// Waits until this member's CRC32C messages are sent.
  LOCKSTEP_DECL void wait_announced();
  /// \throws LinkFailed if p[0..bytes), received from r, has another CRC32C.
  LOCKSTEP_DECL void compare(std::size_t r, const std::byte* p, std::size_t bytes, Crc crc);
  LOCKSTEP_DECL void send(std::size_t r, gloo::transport::UnboundBuffer& buffer, std::uint64_t kind,
                          std::size_t offset, std::size_t bytes);
  LOCKSTEP_DECL void receive(std::size_t r, gloo::transport::UnboundBuffer& buffer,
                             std::uint64_t kind, std::size_t offset, std::size_t bytes);
  /// Appends to the batch, which the next wait passes to Gloo: one wakeup for many messages.
  LOCKSTEP_DECL void post(const GlooPost& post);
  LOCKSTEP_DECL void flush();
  /// Waits until Gloo's thread has processed the batch.
  LOCKSTEP_DECL void wait_posted();
  LOCKSTEP_DECL GlooCall call_of(std::size_t r);
  template <class F>
  void for_each_peer(const F& f) const;

  /// Member r's part of a chunk: whole cache lines, so that each part is aligned as the first.
  LOCKSTEP_DECL Slice part(std::size_t bytes, std::size_t r) const;
  LOCKSTEP_DECL void reserve_scratch(std::size_t bytes);
  LOCKSTEP_DECL void release_ranges();
  LOCKSTEP_DECL Range& range_of(const std::byte* p, std::size_t bytes);
  LOCKSTEP_DECL void wait_frames_sent();
  LOCKSTEP_DECL void wait_recv(std::size_t r, gloo::transport::UnboundBuffer& buffer,
                               bool waits_for_frame = false);
  LOCKSTEP_DECL void wait_send(std::size_t r, gloo::transport::UnboundBuffer& buffer);
  static constexpr std::chrono::milliseconds no_timeout = GlooMesh::no_timeout;

  template <class F>
  void wait(std::size_t r, gloo::transport::UnboundBuffer& buffer, bool waits_for_frame,
            const F& f);
  /// Throws what ended a wait: a message that Gloo rejected, or the shutdown of the mesh.
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_wait_failure();

  /// Runs f(r), which calls Gloo; an error of Gloo's means that the connection to r is lost.
  template <class F>
  void call_gloo(std::size_t r, const F& f);
  /// Throws the exception for the cause of the mesh's shutdown.
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_shutdown();

  /// Data received from r differs from what r sent.
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_corrupt(std::size_t r);

  /// The connection to r is gone: throws the cause in r's notice, or Gloo's `fact` if r sent none.
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_lost(std::size_t r, std::string_view fact);
  /// The wait for r timed out. If it was for r's frame, names all members whose frame is missing.
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_timeout(std::size_t r, bool waits_for_frame);
  /// `other` makes another call than this member.
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_mismatch(std::size_t other);

  std::shared_ptr<GlooMesh> mesh_;
  SumOrder order_;
  GlooWait wait_;
  GlooCall call_;
  std::size_t parity_ = 0;       // the set, 0 or 1, that receives the frames of this operation
  bool has_frames_ = false;      // the last operation's frames are not posted for receiving again
  std::size_t header_, stride_;  // of a frame, in bytes; multiples of 64, to align the payload
  std::size_t frame_bytes_ = 0;
  std::vector<std::byte> frames_, scratch_;
  std::vector<Crc> checks_;  // 4 sets of one CRC32C per rank
  std::vector<const std::byte*> parts_;
  std::vector<Peer> peers_;  // after the memory that their buffers refer to
  std::vector<Range> ranges_;
  GlooBatch batch_;
  bool in_flight_ = false;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/gloo_channel.ipp"
#endif
