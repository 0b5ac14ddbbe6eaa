/// \file
/// Frames of the rendezvous: length (4 bytes), type (2 bytes), body; little-endian. Invariants: no
/// frame is longer than `max_frame_bytes`; a reader never looks beyond the bytes it was given, takes
/// no memory before it has checked a length, and fails for good at the first wrong one.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

inline constexpr std::size_t max_frame_bytes = 64 * 1024;
inline constexpr std::size_t frame_header = 6;
/// What a connection may send before it is known who speaks.
inline constexpr std::size_t max_first_frame_bytes = 4 * 1024;
/// The first bytes of the side that connects. TLS begins with 0x16.
inline constexpr std::string_view greeting = "LKS1";

enum class FrameType : std::uint16_t {
  hello = 1,    ///< who comes, and what must be equal on all ranks
  refuse,       ///< the sentence why not
  missing,      ///< the ranks that are still missing
  peers,        ///< addresses of some ranks
  start,        ///< all are here
  heartbeat,    ///< alive, and how far
  request,      ///< to the store
  reply,        ///< of the store
  accuse,       ///< an exchange with this rank failed
  failure,      ///< the last words of a rank
  verdict,      ///< who is lost
  leave,        ///< leaves, because of a verdict or at the end
  all_left,     ///< all have left
  retry_later,  ///< not now, or not this way; the worker tries again
};

/// Puts a frame together.
class FrameWriter {
 public:
  LOCKSTEP_COLD_DECL explicit FrameWriter(FrameType type);

  template <std::unsigned_integral N>
  FrameWriter& number(N n) {
    for (std::size_t i = 0; i < sizeof(N); ++i)
      bytes_ += static_cast<char>(static_cast<unsigned char>(n >> (8 * i)));
    return *this;
  }
  FrameWriter& flag(bool set) { return number(static_cast<std::uint8_t>(set)); }
  LOCKSTEP_COLD_DECL FrameWriter& bytes(std::string_view value);

  /// \throws UsageError if the frame has become too long.
  LOCKSTEP_COLD_DECL std::string finish() &&;

 private:
  std::string bytes_;
};

/// Takes a body apart. After a wrong length all values are zero or empty, and `finished` is false.
class FrameReader {
 public:
  explicit FrameReader(std::string_view body) : rest_(body) {}

  template <std::unsigned_integral N>
  N number() {
    if (rest_.size() < sizeof(N)) return fail(), N{0};
    N n = 0;
    for (std::size_t i = 0; i < sizeof(N); ++i)
      n = static_cast<N>(n | static_cast<N>(N{static_cast<unsigned char>(rest_[i])} << (8 * i)));
    rest_.remove_prefix(sizeof(N));
    return n;
  }
  /// 0 or 1, nothing else.
  LOCKSTEP_COLD_DECL bool flag();
  LOCKSTEP_COLD_DECL std::string bytes(std::size_t longest);
  /// A count of entries that each take at least `smallest` bytes of what is left.
  LOCKSTEP_COLD_DECL std::size_t count(std::size_t smallest);
  template <class Enum>
  Enum choice(Enum last) {
    const auto n = number<std::uint8_t>();
    if (n > static_cast<std::uint8_t>(last)) return fail(), Enum{};
    return static_cast<Enum>(n);
  }

  bool has_more() const { return !rest_.empty(); }
  /// What was read makes no sense otherwise.
  LOCKSTEP_COLD_DECL void require(bool holds);
  /// All was right, and nothing is left over.
  bool finished() const { return !failed_ && rest_.empty(); }
  bool failed() const { return failed_; }

 private:
  LOCKSTEP_COLD_DECL void fail();

  std::string_view rest_;
  bool failed_ = false;
};

/// One frame at the beginning of a stream of bytes.
struct Frame {
  FrameType type{};
  std::string_view body{};  ///< lies in the stream
  std::size_t size = 0;     ///< bytes of the stream that it takes
};

enum class Framing { incomplete, complete, wrong };

/// Finds the first frame of `stream`. Wrong: a length or type that cannot be, whatever follows.
LOCKSTEP_COLD_DECL Framing next_frame(std::string_view stream, std::size_t longest, Frame& frame);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/frames.ipp"
#endif
