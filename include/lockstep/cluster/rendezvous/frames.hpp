/// \file
/// Frames of the rendezvous: length (4 bytes), type (2 bytes), body; little-endian. Invariants: no
/// frame is longer than `longest_frame`; a reader never looks beyond the bytes it was given, takes
/// no memory before it has checked a length, and fails for good at the first wrong one.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"

namespace lockstep::detail {

inline constexpr std::size_t longest_frame = 64 * 1024;
inline constexpr std::size_t frame_header = 6;
/// What a connection may send before it is known who speaks.
inline constexpr std::size_t longest_first_frame = 4 * 1024;
/// The first bytes of the side that connects. TLS begins with 0x16.
inline constexpr std::string_view greeting = "LKS1";

enum class FrameType : std::uint16_t {
  hello = 1,  ///< who comes, and what must be equal on all ranks
  refuse,     ///< the sentence why not
  waiting,    ///< the ranks that are still missing
  peers,      ///< addresses of some ranks
  start,      ///< all are here
  heartbeat,  ///< alive, and how far
  request,    ///< to the store
  reply,      ///< of the store
  accuse,     ///< an exchange with this rank failed
  failure,    ///< the last words of a rank
  verdict,    ///< who is lost
  goodbye,    ///< leaves, because of a verdict or at the end
  farewell,   ///< all have left
  later,      ///< not now, or not this way; the worker tries again
};
inline constexpr auto last_frame_type = FrameType::later;

/// Puts a frame together.
class FrameWriter {
 public:
  explicit FrameWriter(FrameType type) : bytes_(4, '\0') {
    number(static_cast<std::uint16_t>(type));
  }

  template <std::unsigned_integral N>
  FrameWriter& number(N n) {
    for (std::size_t i = 0; i < sizeof(N); ++i)
      bytes_ += static_cast<char>(static_cast<unsigned char>(n >> (8 * i)));
    return *this;
  }
  FrameWriter& flag(bool set) { return number(static_cast<std::uint8_t>(set)); }
  FrameWriter& bytes(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    bytes_ += value;
    return *this;
  }

  /// \throws UsageError if the frame has become too long.
  std::string finish() && {
    if (bytes_.size() > longest_frame)
      throw UsageError({"rendezvous: a message of ", bytes_.size(), " bytes; the longest is ",
                        longest_frame, "; send less at once"});
    const auto length = static_cast<std::uint32_t>(bytes_.size() - 4);
    for (std::size_t i = 0; i < 4; ++i)
      bytes_[i] = static_cast<char>(static_cast<unsigned char>(length >> (8 * i)));
    return std::move(bytes_);
  }

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
  bool flag() {
    const auto n = number<std::uint8_t>();
    if (n > 1) fail();
    return n == 1;
  }
  std::string bytes(std::size_t longest) {
    const std::size_t length = number<std::uint32_t>();
    if (length > longest || length > rest_.size()) return fail(), std::string();
    std::string value(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return value;
  }
  /// A count of entries that each take at least `smallest` bytes of what is left.
  std::size_t count(std::size_t smallest) {
    const std::size_t n = number<std::uint32_t>();
    if (n > rest_.size() / smallest) return fail(), std::size_t{0};
    return n;
  }
  template <class Enum>
  Enum choice(Enum last) {
    const auto n = number<std::uint8_t>();
    if (n > static_cast<std::uint8_t>(last)) return fail(), Enum{};
    return static_cast<Enum>(n);
  }

  bool has_more() const { return !rest_.empty(); }
  /// What was read makes no sense otherwise.
  void require(bool holds) {
    if (!holds) fail();
  }
  /// All was right, and nothing is left over.
  bool finished() const { return !failed_ && rest_.empty(); }
  bool failed() const { return failed_; }

 private:
  void fail() {
    failed_ = true;
    rest_ = {};
  }

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
inline Framing next_frame(std::string_view stream, std::size_t longest, Frame& frame) {
  FrameReader header(stream.substr(0, frame_header));
  if (stream.size() < 4) return Framing::incomplete;
  const std::size_t length = header.number<std::uint32_t>();
  if (length < 2 || length + 4 > longest) return Framing::wrong;
  if (stream.size() < frame_header) return Framing::incomplete;
  const auto type = header.number<std::uint16_t>();
  if (type < 1 || type > static_cast<std::uint16_t>(last_frame_type)) return Framing::wrong;
  if (stream.size() < length + 4) return Framing::incomplete;
  frame = {static_cast<FrameType>(type), stream.substr(frame_header, length - 2), length + 4};
  return Framing::complete;
}

}  // namespace lockstep::detail
