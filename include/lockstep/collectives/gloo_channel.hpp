/// \file
/// One channel of a Gloo mesh: how the operations of one group travel. Invariants: before data of
/// an operation is waited for, all members have shown that they call the same one; Gloo never gets
/// a message longer than what waits for it, since the tag of data is made from the call; all that
/// arrives is compared with the CRC32C of what was sent before it is used; what
/// touches a member's own memory is gone when its operation returns or throws; after the first
/// operation of a kind and size nothing is allocated here.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "lockstep/collectives/gloo_mesh.hpp"
#include "lockstep/collectives/gloo_sum.hpp"
#include "lockstep/collectives/sum_members.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep::detail {

/// What a member calls. All members bring the same.
struct GlooCall {
  enum class Operation : std::uint64_t { all_reduce, broadcast, all_gather, barrier };
  Operation operation{};
  std::uint64_t n = 0, m = 0, root = 0, element = 0;

  bool operator==(const GlooCall&) const = default;
  LOCKSTEP_DECL const char* name() const;
  LOCKSTEP_DECL std::uint64_t hash() const;
};

class GlooChannel {
 public:
  /// `bytes` of one member go in one message that needs no answer; more are cut into parts.
  static constexpr std::size_t small = 65536;
  /// So many bytes are exchanged at a time, so that a deadline is one of progress.
  static constexpr std::size_t chunk = std::size_t{8} << 20;

  /// Up to so many bytes, the wait for a second message costs two members more than adding all.
  static constexpr std::size_t both_add = std::size_t{512} << 10;

  LOCKSTEP_DECL GlooChannel(std::shared_ptr<GlooMesh> mesh, std::size_t channel,
                            std::chrono::nanoseconds timeout, SumOrder order);
  GlooChannel(const GlooChannel&) = delete;
  GlooChannel& operator=(const GlooChannel&) = delete;
  ~GlooChannel() { mesh_->remove(wait_); }

  std::size_t rank() const { return mesh_->rank(); }
  std::size_t size() const { return mesh_->size(); }
  void abort() { mesh_->abort(); }

  /// Runs one operation. Whatever it throws ends the mesh.
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

  /// What this member says in its frame.
  std::byte* payload() { return frame(2, rank()) + header_; }
  /// What a member has said; its own, too. Valid from `receive_frames` to `finish`.
  const std::byte* payload_of(std::size_t r) {
    return frame(r == rank() ? 2 : parity_, r) + header_;
  }
  /// to[0..bytes) = the sum of what all have said from `at` on.
  LOCKSTEP_DECL void add_frames(std::byte* to, std::size_t at, std::size_t bytes, GlooSum sum);

  /// Sends the call and the first `bytes` of `payload()` to all: at once, or if `later`, when `reduce`
  /// or `copy` knows the CRC32C of what follows.
  LOCKSTEP_DECL void send_frames(std::size_t bytes, bool later = false);

  /// Returns when all members' frames are here. \throws UsageError if they differ. All members
  /// then know it, since none leaves before it has got and sent all frames.
  LOCKSTEP_DECL void receive_frames();

  /// After the last look at the frames. The next operation's `send_frames` gives them back to Gloo:
  /// nobody sends the frame after the next before he has got that.
  LOCKSTEP_DECL void finish();

  /// p[0..bytes) becomes the sum over the members. Each gets one part of it from all, adds, and
  /// sends the sum to all. Of `both_add` bytes two members send all at once and both add: as many
  /// bytes, half the messages. Meets unless the members `met`. The CRC32C of the first parts travel
  /// in the frames, those of others in separate messages.
  LOCKSTEP_DECL void reduce(std::byte* p, std::size_t bytes, GlooSum sum, bool frames_received);

  /// Sends from[0..bytes) to all and receives into[r bytes..) from each member r of `senders`,
  /// where those exist.
  LOCKSTEP_DECL void copy(const std::byte* from, std::byte* into, std::size_t bytes,
                          std::size_t first_sender, std::size_t senders);

 private:
  static constexpr std::uint64_t frame_kind = 1, part_kind = 2, sum_kind = 3, check_kind = 4;
  static constexpr std::size_t max_ranges = 256;

  using Crc = std::uint32_t;
  /// Of messages that carry a CRC32C alone: the number of the set in `checks_`. A set of sums
  /// follows the sums, one of parts follows the parts that are not announced by a frame.
  static constexpr std::size_t sums_out = 0, sums_in = 1, parts_out = 2, parts_in = 3;

  // A frame:
  //
  //     FrameHead | CRC32C of the part for each rank | `bytes` of the operation
  //     0                                            header_               header_ + small
  struct FrameHead {
    Crc crc = 0;              ///< of all that follows it
    std::uint32_t bytes = 0;  ///< after the header
    GlooCall call{};
  };

  struct Peer {
    GlooPairs::Buffer out, scratch;
    std::array<GlooPairs::Buffer, 2> in;
    std::array<GlooPairs::Buffer, 4> checks;
  };
  /// Memory of the caller, as Gloo knows it: one buffer a peer, so that an error names one.
  struct Range {
    const std::byte* p = nullptr;
    std::size_t bytes = 0;
    std::vector<GlooPairs::Buffer> buffers;
  };

  LOCKSTEP_DECL std::uint64_t slot(std::uint64_t kind) const;
  /// Set 0 and 1 are received in turn, 2 is sent.
  LOCKSTEP_DECL std::byte* frame(std::size_t set, std::size_t r);
  /// Where a frame has the CRC32C of the part for `r`.
  LOCKSTEP_DECL static std::byte* part_crc(std::byte* frame, std::size_t r);
  LOCKSTEP_DECL bool is_whole(const std::byte* frame) const;

  Crc& check(std::size_t set, std::size_t r) { return checks_[set * size() + r]; }
  LOCKSTEP_DECL void expect_check(std::size_t r, std::size_t set);
  LOCKSTEP_DECL void send_check(std::size_t r, std::size_t set, Crc crc);

  /// Tells each peer the CRC32C of the part that it is sent: in the frame, and waits_for_frame, or in a
  /// message.
  template <class CrcFor>
  void announce(bool in_frames, const CrcFor& crc_for);
  template <class CrcFor, class Comes>
  void announce(bool in_frames, const CrcFor& crc_for, bool sends, const Comes& comes);
  /// What `r` has announced of its part for this member.
  LOCKSTEP_DECL Crc announced(std::size_t r, bool in_frames);
  LOCKSTEP_DECL void wait_announced();
  LOCKSTEP_DECL void compare(std::size_t r, const std::byte* p, std::size_t bytes, Crc crc);
  LOCKSTEP_DECL void send(std::size_t r, gloo::transport::UnboundBuffer& buffer, std::uint64_t kind,
                          std::size_t offset, std::size_t bytes);
  LOCKSTEP_DECL void receive(std::size_t r, gloo::transport::UnboundBuffer& buffer,
                             std::uint64_t kind, std::size_t offset, std::size_t bytes);
  /// Gloo gets it before the next wait.
  LOCKSTEP_DECL void post(const GlooPost& post);
  LOCKSTEP_DECL void flush();
  /// Gloo's thread is done with what it was given.
  LOCKSTEP_DECL void wait_posted();
  LOCKSTEP_DECL GlooCall call_of(std::size_t r);
  template <class F>
  void for_each_peer(const F& f) const;

  /// Whole cache lines, so that the numbers of a part are aligned as the first.
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
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_wait_failure();

  /// Calls Gloo for the connection to r.
  template <class F>
  void call_gloo(std::size_t r, const F& f);
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_shutdown();

  /// What came from r is not what r sent.
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_corrupt(std::size_t r);

  /// The connection to r is gone: by what r has said, or by what Gloo says.
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_lost(std::size_t r, std::string_view fact);
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_timeout(std::size_t r, bool waits_for_frame);
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_mismatch(std::size_t other);

  std::shared_ptr<GlooMesh> mesh_;
  SumOrder order_;
  GlooWait wait_;
  GlooCall call_;
  std::size_t parity_ = 0;
  bool has_frames_ = false;      // the frames of the last operation are still here
  std::size_t header_, stride_;  ///< of a frame, in bytes; keep numbers aligned
  std::size_t frame_bytes_ = 0;
  std::vector<std::byte> frames_, scratch_;
  std::vector<Crc> checks_;  // 4 sets of one for each rank
  std::vector<const std::byte*> parts_;
  std::vector<Peer> peers_;  // after the memory that they touch
  std::vector<Range> ranges_;
  GlooBatch batch_;
  bool in_flight_ = false;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/gloo_channel.ipp"
#endif
