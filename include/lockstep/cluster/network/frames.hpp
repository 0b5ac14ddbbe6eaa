/// \file
/// The wire format of the rendezvous, little-endian. Invariants: no frame is longer than
/// `max_frame_bytes`; a reader never reads past the bytes it was given, checks a length before it
/// allocates, and stays failed after the first invalid one.
///
///     offset  0        4      6
///             | length | type | body ... |      length = 2 + size of the body, in bytes
///     body: numbers (1 to 8 bytes), flags (1 byte, 0 or 1), strings (size in 4 bytes, data)
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// The longest frame, header included.
inline constexpr std::size_t max_frame_bytes = 64 * 1024;
/// Length and type.
inline constexpr std::size_t frame_header = 6;
/// The longest first frame: a peer that is not authenticated cannot make the chief buffer more.
inline constexpr std::size_t max_first_frame_bytes = 4 * 1024;
/// Limits for sentences and addresses, and for names and job ids.
inline constexpr std::size_t max_text_bytes = 4096, max_name_bytes = 256;
/// The first bytes of a worker without TLS. A TLS record begins with 0x16.
inline constexpr std::string_view greeting = "LKS1";

/// The sender and the content of each frame. Values are part of the protocol.
enum class FrameType : std::uint16_t {
  hello = 1,    ///< worker: rank, job, and the fields that must be equal
  refuse,       ///< chief: the reason why the worker cannot join
  missing,      ///< chief: the ranks that have not joined
  peers,        ///< chief: the addresses of a range of ranks
  start,        ///< chief: all ranks have joined
  heartbeat,    ///< both: progress and time stamps
  request,      ///< worker: to the store
  reply,        ///< chief: from the store
  accuse,       ///< worker: an exchange with a rank failed
  failure,      ///< worker: this process has failed
  verdict,      ///< chief: the lost rank
  leave,        ///< both: leaves, with or without a verdict
  all_left,     ///< chief: all ranks have left
  retry_later,  ///< chief: join again later or over another address family
  agreement,    ///< both: of an elastic job, see elastic_messages.hpp
};

/// Builds a frame.
class FrameWriter {
 public:
  /// Reserves the length and writes the type.
  LOCKSTEP_COLD_DECL explicit FrameWriter(FrameType type);

  template <std::unsigned_integral N>
  FrameWriter& number(N n) {
    for (std::size_t i = 0; i < sizeof(N); ++i)
      bytes_ += static_cast<char>(static_cast<unsigned char>(n >> (8 * i)));
    return *this;
  }
  /// One byte, 0 or 1.
  FrameWriter& flag(bool set) { return number(static_cast<std::uint8_t>(set)); }
  /// A length and the bytes.
  LOCKSTEP_COLD_DECL FrameWriter& bytes(std::string_view value);

  /// The frame. \throws UsageError if it is too long.
  LOCKSTEP_COLD_DECL std::string finish() &&;

 private:
  std::string bytes_;
};

/// Parses a body. After an error all values are zero or empty, and `finished` is false, so callers
/// check once, at the end.
class FrameReader {
 public:
  /// `body` must outlive the reader.
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
  /// Fails unless the byte is 0 or 1.
  LOCKSTEP_COLD_DECL bool flag();
  /// Fails for more than `longest` bytes.
  LOCKSTEP_COLD_DECL std::string bytes(std::size_t longest);
  /// A number of entries, each of which takes at least `smallest` bytes of the rest. The check
  /// bounds what a caller allocates for them.
  LOCKSTEP_COLD_DECL std::size_t count(std::size_t smallest);
  /// An enumerator from 0 to `last`.
  template <class Enum>
  Enum choice(Enum last) {
    const auto n = number<std::uint8_t>();
    if (n > static_cast<std::uint8_t>(last)) return fail(), Enum{};
    return static_cast<Enum>(n);
  }

  /// True if bytes are left: for fields that newer versions append.
  bool has_more() const { return !rest_.empty(); }
  /// Fails unless `holds`, for conditions between fields.
  LOCKSTEP_COLD_DECL void require(bool holds);
  /// True if every value was valid and no bytes are left.
  bool finished() const { return !failed_ && rest_.empty(); }
  /// True after the first invalid value.
  bool failed() const { return failed_; }

 private:
  /// Drops the rest, so that all further reads fail too.
  LOCKSTEP_COLD_DECL void fail();

  std::string_view rest_;
  bool failed_ = false;
};

/// The message as a frame. \throws UsageError if it is too long.
template <class Message>
std::string frame(const Message& message) {
  FrameWriter writer(Message::type);
  message.write(writer);
  return std::move(writer).finish();
}

/// The message in `body`; nullopt if it is malformed.
template <class Message>
std::optional<Message> parse(std::string_view body) {
  FrameReader reader(body);
  Message message;
  message.read(reader);
  if (!reader.finished()) return std::nullopt;
  return message;
}

/// The first frame of a byte stream.
struct Frame {
  FrameType type{};
  std::string_view body{};  ///< a view into the stream
  std::size_t size = 0;     ///< bytes to consume from the stream
};

/// The result of `next_frame`.
enum class Framing { incomplete, complete, wrong };

/// Finds the first frame of `stream`. Wrong: an invalid length or type, whatever bytes follow.
LOCKSTEP_COLD_DECL Framing next_frame(std::string_view stream, std::size_t longest, Frame& frame);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/network/frames.ipp"
#endif
