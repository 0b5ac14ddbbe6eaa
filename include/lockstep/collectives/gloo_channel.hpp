/// \file
/// One channel of a Gloo mesh: how the operations of one group travel. Invariants: before data of
/// an operation is waited for, all members have shown that they call the same one; Gloo never gets
/// a message longer than what waits for it, since the tag of data is made from the call; all that
/// arrives is compared with the CRC32C of what was sent before it is used; what
/// touches a member's own memory is gone when its operation returns or throws; after the first
/// operation of a kind and size nothing is allocated here.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/collectives/gloo_mesh.hpp"
#include "lockstep/collectives/gloo_sum.hpp"
#include "lockstep/collectives/sum_members.hpp"
#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::detail {

/// What a member calls. All members bring the same.
struct GlooCall {
  enum class Operation : std::uint64_t { all_reduce, broadcast, all_gather, barrier };
  Operation operation{};
  std::uint64_t n = 0, m = 0, root = 0, element = 0;

  bool operator==(const GlooCall&) const = default;
  const char* name() const {
    constexpr std::array names{"all_reduce", "broadcast", "all_gather", "barrier"};
    return names[std::min<std::size_t>(static_cast<std::size_t>(operation), names.size() - 1)];
  }
  std::uint64_t hash() const {
    std::uint64_t h = 0;
    for (const std::uint64_t v : {static_cast<std::uint64_t>(operation), n, m, root, element})
      h = (h ^ v) * 0x9e37'79b9'7f4a'7c15u, h ^= h >> 29;
    return h;
  }
};

class GlooChannel {
 public:
  /// `bytes` of one member go in one message that needs no answer; more are cut into parts.
  static constexpr std::size_t small = 65536;
  /// So many bytes are exchanged at a time, so that a deadline is one of progress.
  static constexpr std::size_t chunk = std::size_t{8} << 20;

  /// Up to so many bytes, the wait for a second message costs two members more than adding all.
  static constexpr std::size_t both_add = std::size_t{512} << 10;

  GlooChannel(std::shared_ptr<GlooMesh> mesh, std::size_t channel, std::chrono::nanoseconds timeout,
              SumOrder order)
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
    ranges_.reserve(max_ranges);  // they stay where they are
    mesh_->add(wait_);
    batch_.refused = [this](std::size_t r, const std::exception_ptr& why) {
      mesh_->refuse(wait_, r, why);
    };
    try {
      if (!mesh_->enter()) refuse();
      for_each_peer([&](std::size_t r) {
        Peer& peer = peers_[r];
        peer.out = mesh_->pairs_.buffer(frame(2, rank()), stride_);
        for (std::size_t parity = 0; parity < 2; ++parity) {
          peer.in[parity] = mesh_->pairs_.buffer(frame(parity, r), stride_);
          receive(r, *peer.in[parity], frame_kind, 0,
                  stride_);  // if refused, the first wait says so
        }
        for (std::size_t i = 0; i < 4; ++i)
          peer.checks[i] = mesh_->pairs_.buffer(&check(i, r), sizeof(Crc));
      });
      flush();
      settle();
      mesh_->leave();
    } catch (...) {
      mesh_->remove(wait_);
      throw;
    }
  }
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
    if (!mesh_->enter()) refuse();
    try {
      body();
      settle();
    } catch (...) {
      mesh_->end(GlooEnd::Why::aborted, rank());
      settle();
      batch_.posts.clear();
      ranges_.clear();
      mesh_->leave();
      throw;
    }
    mesh_->advance();
    mesh_->leave();
  }

  /// What this member says in its frame.
  std::byte* mine() { return frame(2, rank()) + header_; }
  /// What a member has said; its own, too. Valid from `meet` to `finish`.
  const std::byte* said_by(std::size_t r) { return frame(r == rank() ? 2 : parity_, r) + header_; }
  /// to[0..bytes) = the sum, in type T, of what all have said from `at` on.
  template <class T>
  void add_frames(std::byte* to, std::size_t at, std::size_t bytes) {
    for (std::size_t r = 0; r < size(); ++r) parts_[r] = said_by(r) + at;
    sum_parts<T>(to, parts_.data(), size(), bytes, order_);
  }

  /// Sends the call and the first `bytes` of `mine()` to all: at once, or if `later`, when `reduce`
  /// or `copy` knows the CRC32C of what follows.
  void send_frames(std::size_t bytes, bool later = false) {
    frame_bytes_ = bytes;
    if (later) return;
    settle();  // Gloo's thread may still read the frame
    FrameHead head{0, static_cast<std::uint32_t>(bytes), call_};
    std::byte* const mine = frame(2, rank());
    std::memcpy(mine, &head, sizeof head);
    head.crc = crc32c(mine + sizeof head.crc, header_ + bytes - sizeof head.crc);
    std::memcpy(mine, &head.crc, sizeof head.crc);
    for_each_peer([&](std::size_t r) {
      if (was_met_) receive(r, *peers_[r].in[parity_ ^ 1u], frame_kind, 0, stride_);
      send(r, *peers_[r].out, frame_kind, 0, header_ + bytes);
    });
  }

  /// Returns when all members' frames are here. \throws UsageError if they differ. All members
  /// then know it, since none leaves before it has got and sent all frames.
  void meet() {
    std::size_t other = rank();
    std::exception_ptr error;
    for (std::size_t r = 0; r < size() && !error; ++r) {
      if (r == rank()) continue;
      try {
        wait_recv(r, *peers_[r].in[parity_], true);
        if (!is_whole(frame(parity_, r))) damage(r);
        if (call_of(r) != call_) other = r;
      } catch (const CollectiveError&) {
        error = std::current_exception();
      }
    }
    if (other != rank()) {
      if (!error) wait_frames_sent();
      disagree(other);
    }
    if (error) std::rethrow_exception(error);
    mesh_->advance();
  }

  /// After the last look at the frames. The next operation's `send_frames` gives them back to Gloo:
  /// nobody sends the frame after the next before he has got that.
  void finish() {
    wait_frames_sent();
    parity_ ^= 1u;
    was_met_ = true;
  }

  using Sum = void (*)(std::byte* to, const std::byte* const* part, std::size_t members,
                       std::size_t bytes, SumOrder order);

  /// p[0..bytes) becomes the sum over the members. Each gets one part of it from all, adds, and
  /// sends the sum to all. Of `both_add` bytes two members send all at once and both add: as many
  /// bytes, half the messages. Meets unless the members `met`. The CRC32C of the first parts travel
  /// in the frames, those of others in separate messages.
  void reduce(std::byte* p, std::size_t bytes, Sum sum, bool met) {
    const bool all_add = size() == 2 && bytes <= both_add;
    Range& range = range_of(p, bytes);
    for (std::size_t at = 0; at < bytes; at += chunk) {
      const std::size_t count = std::min(chunk, bytes - at);
      const auto part_of = [&](std::size_t r) {
        return all_add ? Slice{0, count} : part(count, r);
      };
      const Slice own = part_of(rank());
      grow_scratch(own.count * (size() - 1));
      std::size_t seat = 0;
      for (std::size_t r = 0; r < size(); ++r)
        parts_[r] = r == rank() ? p + at + own.first : scratch_.data() + own.count * seat++;
      for_each_peer([&](std::size_t r) {
        const Slice theirs = part_of(r);
        receive(r, *peers_[r].scratch, part_kind,
                static_cast<std::size_t>(parts_[r] - scratch_.data()), own.count);
        if (!all_add) receive(r, *range.buffers[r], sum_kind, at + theirs.first, theirs.count);
        if (!all_add && theirs.count > 0) expect_check(r, sums_in);
        send(r, *range.buffers[r], part_kind, at + theirs.first, theirs.count);
      });
      const bool in_frames = !met;
      announce(in_frames, [&](std::size_t r) {
        const Slice theirs = part_of(r);
        return crc32c(p + at + theirs.first, theirs.count);
      });
      met = true;
      for (std::size_t r = 0; r < size(); ++r) {
        if (r == rank()) continue;
        if (own.count > 0) wait_recv(r, *peers_[r].scratch);
        compare(r, parts_[r], own.count, announced(r, in_frames));
      }
      if (!in_frames) wait_announced();
      if (all_add) wait_send(1 - rank(), *range.buffers[1 - rank()]);  // what the sum overwrites
      sum(p + at + own.first, parts_.data(), size(), own.count, order_);
      mesh_->advance();
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
      mesh_->advance();
    }
  }

  /// Sends from[0..bytes) to all and receives into[r bytes..) from each member r of `senders`,
  /// where those exist.
  void copy(const std::byte* from, std::byte* into, std::size_t bytes, std::size_t first_sender,
            std::size_t senders) {
    const bool sends = rank() >= first_sender && rank() < first_sender + senders;
    if (ranges_.size() + 2 > max_ranges) forget_ranges();
    Range* const out = sends ? &range_of(from, bytes) : nullptr;
    Range* const in = into ? &range_of(into, bytes * senders) : nullptr;
    const auto comes = [&](std::size_t r) {
      return in && r >= first_sender && r < first_sender + senders;
    };
    for (std::size_t at = 0; at < bytes; at += chunk) {
      const std::size_t count = std::min(chunk, bytes - at);
      for_each_peer([&](std::size_t r) {
        if (comes(r))
          receive(r, *in->buffers[r], part_kind, (r - first_sender) * bytes + at, count);
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
      mesh_->advance();
    }
  }

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

  std::uint64_t slot(std::uint64_t kind) const {
    return gloo_slot(wait_.channel, kind, kind == frame_kind ? 0 : call_.hash());
  }
  /// Set 0 and 1 are received in turn, 2 is sent.
  std::byte* frame(std::size_t set, std::size_t r) {
    return frames_.data() + (set * size() + r) * stride_;
  }
  /// Where a frame has the CRC32C of the part for `r`.
  static std::byte* part_crc(std::byte* frame, std::size_t r) {
    return frame + sizeof(FrameHead) + r * sizeof(Crc);
  }
  bool is_whole(const std::byte* frame) const {
    FrameHead head;
    std::memcpy(&head, frame, sizeof head);
    return head.bytes <= small &&
           head.crc == crc32c(frame + sizeof head.crc, header_ + head.bytes - sizeof head.crc);
  }

  Crc& check(std::size_t set, std::size_t r) { return checks_[set * size() + r]; }
  void expect_check(std::size_t r, std::size_t set) {
    receive(r, *peers_[r].checks[set], check_kind + set / 2, 0, sizeof(Crc));
  }
  void send_check(std::size_t r, std::size_t set, Crc crc) {
    check(set, r) = crc;
    send(r, *peers_[r].checks[set], check_kind + set / 2, 0, sizeof(Crc));
  }

  /// Tells each peer the CRC32C of the part that it is sent: in the frame, and meets, or in a
  /// message.
  template <class CrcFor>
  void announce(bool in_frames, const CrcFor& crc_for) {
    announce(in_frames, crc_for, true, [](std::size_t) { return true; });
  }
  template <class CrcFor, class Comes>
  void announce(bool in_frames, const CrcFor& crc_for, bool sends, const Comes& comes) {
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
    meet();
  }
  /// What `r` has announced of its part for this member.
  Crc announced(std::size_t r, bool in_frames) {
    if (!in_frames) {
      wait_recv(r, *peers_[r].checks[parts_in]);
      return check(parts_in, r);
    }
    Crc crc = 0;
    std::memcpy(&crc, part_crc(frame(parity_, r), rank()), sizeof crc);
    return crc;
  }
  void wait_announced() {
    for_each_peer([&](std::size_t r) { wait_send(r, *peers_[r].checks[parts_out]); });
  }
  void compare(std::size_t r, const std::byte* p, std::size_t bytes, Crc crc) {
    if (crc32c(p, bytes) != crc) damage(r);
  }
  void send(std::size_t r, gloo::transport::UnboundBuffer& buffer, std::uint64_t kind,
            std::size_t offset, std::size_t bytes) {
    post({GlooPost::Way::send, r, &buffer, slot(kind), offset, bytes});
  }
  void receive(std::size_t r, gloo::transport::UnboundBuffer& buffer, std::uint64_t kind,
               std::size_t offset, std::size_t bytes) {
    post({GlooPost::Way::receive, r, &buffer, slot(kind), offset, bytes});
  }
  /// Gloo gets it before the next wait.
  void post(const GlooPost& post) {
    settle();
    if (post.bytes > 0) batch_.posts.push_back(post);
  }
  void flush() {
    if (is_posted_ || batch_.posts.empty()) return;
    is_posted_ = true;
    mesh_->pairs_.loop().post(batch_);
  }
  /// Gloo's thread is done with what it was given.
  void settle() {
    if (!is_posted_) return;
    mesh_->pairs_.loop().drain(batch_);
    is_posted_ = false;
    batch_.posts.clear();
  }

  GlooCall call_of(std::size_t r) {
    FrameHead head;
    std::memcpy(&head, frame(parity_, r), sizeof head);
    return head.call;
  }
  template <class F>
  void for_each_peer(const F& f) const {
    mesh_->pairs_.for_each_peer(f);
  }

  /// Whole cache lines, so that the numbers of a part are aligned as the first.
  Slice part(std::size_t bytes, std::size_t r) const {
    const Slice lines = slice_of((bytes + 63) / 64, size(), r);
    const std::size_t first = std::min(bytes, lines.first * 64);
    return {first, std::min(bytes, (lines.first + lines.count) * 64) - first};
  }

  void grow_scratch(std::size_t bytes) {
    if (bytes <= scratch_.size()) return;
    settle();
    for (Peer& peer : peers_) peer.scratch.reset();
    scratch_.resize(bytes);
    for_each_peer([&](std::size_t r) {
      peers_[r].scratch = mesh_->pairs_.buffer(scratch_.data(), scratch_.size());
    });
  }

  void forget_ranges() {
    settle();
    ranges_.clear();
  }
  Range& range_of(const std::byte* p, std::size_t bytes) {
    for (Range& range : ranges_)
      if (range.p == p && range.bytes == bytes) return range;
    if (ranges_.size() == max_ranges) forget_ranges();
    Range range{p, bytes, std::vector<GlooPairs::Buffer>(size())};
    for_each_peer([&](std::size_t r) { range.buffers[r] = mesh_->pairs_.buffer(p, bytes); });
    return ranges_.emplace_back(std::move(range));
  }

  void wait_frames_sent() {
    for_each_peer([&](std::size_t r) { wait_send(r, *peers_[r].out); });
  }

  void wait_recv(std::size_t r, gloo::transport::UnboundBuffer& buffer, bool meets = false) {
    wait(r, buffer, meets, [&] { return buffer.waitRecv(nullptr, no_limit); });
  }
  void wait_send(std::size_t r, gloo::transport::UnboundBuffer& buffer) {
    wait(r, buffer, false, [&] { return buffer.waitSend(nullptr, no_limit); });
  }
  static constexpr std::chrono::milliseconds no_limit = GlooMesh::no_limit;

  template <class F>
  void wait(std::size_t r, gloo::transport::UnboundBuffer& buffer, bool meets, const F& f) {
    flush();
    if (!mesh_->begin(wait_, r, buffer)) give_up();
    bool came = false;
    link(r, [&](int) { came = f(); });
    mesh_->finish(wait_);
    if (came && !wait_.is_late && !wait_.is_lost) return;  // else Gloo would end the next wait
    if (wait_.is_late) miss(r, meets);
    if (wait_.is_lost) lose(r, "it was closed");
    give_up();
  }

  [[noreturn, gnu::noinline, gnu::cold]] void give_up() {
    if (const std::exception_ptr why = mesh_->refusal(wait_))
      link(wait_.refused, [&](int) { std::rethrow_exception(why); });
    refuse();
  }

  /// Calls Gloo for the connection to r.
  template <class F>
  void link(std::size_t r, const F& f) {
    std::string fact;
    try {
      return f(static_cast<int>(r));
    } catch (const std::bad_alloc&) {
      mesh_->finish(wait_);
      throw;
    } catch (const std::exception& e) {
      fact = gloo_fact(e);
    }
    mesh_->finish(wait_);
    lose(r, fact);
  }

  [[noreturn, gnu::noinline, gnu::cold]] void refuse() {
    const GlooEnd end = mesh_->ended();
    if (end.why == GlooEnd::Why::cut)
      throw LinkFailed(call_.name(), end.rank, end.by,
                       text({"nothing that was sent over it was acknowledged for ",
                             mesh_->pairs_.links().limit().count(), " ms"}));
    if (end.why == GlooEnd::Why::damaged)
      throw LinkFailed(call_.name(), end.rank, end.by,
                       "data arrived damaged (their CRC32C differs); a network card, a cable or "
                       "memory is faulty");
    const std::string_view why = end.why == GlooEnd::Why::timed_out
                                     ? "a replica did not come in time"
                                 : end.why == GlooEnd::Why::lost    ? "a replica was lost"
                                 : end.why == GlooEnd::Why::misused ? "the replicas' calls differed"
                                                                    : "another replica failed";
    throw CollectiveAborted(end.rank,
                            {call_.name(), ": replica ", rank(), " stopped, since ", why,
                             end.why == GlooEnd::Why::lost || end.why == GlooEnd::Why::timed_out
                                 ? text({" (", end.rank, ")"})
                                 : std::string()});
  }

  /// What came from r is not what r sent.
  [[noreturn, gnu::noinline, gnu::cold]] void damage(std::size_t r) {
    mesh_->end(GlooEnd::Why::damaged, r);
    refuse();
  }

  /// The connection to r is gone: by what r has said, or by what Gloo says.
  [[noreturn, gnu::noinline, gnu::cold]] void lose(std::size_t r, std::string_view fact) {
    if (mesh_->ended().why == GlooEnd::Why::aborted) refuse();
    const GlooEnd words = mesh_->last_words(r);
    if (words.why == GlooEnd::Why::none) {
      mesh_->end(GlooEnd::Why::lost, r);
      throw CollectiveError(
          r, {call_.name(), ": replica ", rank(), " lost its connection to replica ", r, " (", fact,
              "); its process ended, or the network failed"});
    }
    mesh_->end(words);
    refuse();
  }

  [[noreturn, gnu::noinline, gnu::cold]] void miss(std::size_t r, bool meets) {
    mesh_->end(GlooEnd::Why::timed_out, r);
    std::string missing = std::to_string(r);
    for (std::size_t other = r + 1; other < size() && meets; ++other) {
      if (other == rank()) continue;
      auto& frame = *peers_[other].in[parity_];
      const auto moment = std::chrono::steady_clock::now() + std::chrono::milliseconds(10);
      const bool has_come =
          mesh_->within(moment, other, frame, [&] { return frame.waitRecv(nullptr, no_limit); });
      if (!has_come) missing += ", " + std::to_string(other);
    }
    throw CollectiveTimeout(
        r, {call_.name(), ": replica ", rank(), " waited ",
            std::chrono::duration_cast<std::chrono::milliseconds>(wait_.timeout).count(),
            " ms for replica ", missing,
            meets ? ", which did not come" : ", which came and then stopped",
            "; it hangs, or it is slower than the timeout allows"});
  }
  [[noreturn, gnu::noinline, gnu::cold]] void disagree(std::size_t other) {
    mesh_->end(GlooEnd::Why::misused, other);
    const GlooCall a = call_of(other), b = call_;
    throw UsageError({"gloo group: replica ", other, " calls ", a.name(), " of ", a.n,
                      " elements of ", a.element, " bytes, replica ", rank(), " calls ", b.name(),
                      " of ", b.n, " elements of ", b.element,
                      " bytes; all replicas must make the same calls in the same order"});
  }

  std::shared_ptr<GlooMesh> mesh_;
  SumOrder order_;
  GlooWait wait_;
  GlooCall call_;
  std::size_t parity_ = 0;
  bool was_met_ = false;         // the frames of the last operation are still here
  std::size_t header_, stride_;  ///< of a frame, in bytes; keep numbers aligned
  std::size_t frame_bytes_ = 0;
  std::vector<std::byte> frames_, scratch_;
  std::vector<Crc> checks_;  // 4 sets of one for each rank
  std::vector<const std::byte*> parts_;
  std::vector<Peer> peers_;  // after the memory that they touch
  std::vector<Range> ranges_;
  GlooBatch batch_;
  bool is_posted_ = false;
};

}  // namespace lockstep::detail
