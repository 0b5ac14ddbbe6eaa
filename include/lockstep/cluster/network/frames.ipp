#pragma once

#include "lockstep/cluster/network/frames.hpp"

#include "lockstep/core/error.hpp"

namespace lockstep::detail {

inline constexpr auto last_frame_type = FrameType::agreement;

FrameWriter::FrameWriter(FrameType type) : bytes_(4, '\0') {
  number(static_cast<std::uint16_t>(type));
}

FrameWriter& FrameWriter::bytes(std::string_view value) {
  number(static_cast<std::uint32_t>(value.size()));
  bytes_ += value;
  return *this;
}

std::string FrameWriter::finish() && {
  if (bytes_.size() > max_frame_bytes)
    throw UsageError("rendezvous: a message has {} bytes; the maximum is {}; send less at once",
                     bytes_.size(), max_frame_bytes);
  const auto length = static_cast<std::uint32_t>(bytes_.size() - 4);
  for (std::size_t i = 0; i < 4; ++i)
    bytes_[i] = static_cast<char>(static_cast<unsigned char>(length >> (8 * i)));
  return std::move(bytes_);
}

bool FrameReader::flag() {
  const auto n = number<std::uint8_t>();
  if (n > 1) fail();
  return n == 1;
}

std::string FrameReader::bytes(std::size_t longest) {
  const std::size_t length = number<std::uint32_t>();
  if (length > longest || length > rest_.size()) return fail(), std::string();
  std::string value(rest_.substr(0, length));
  rest_.remove_prefix(length);
  return value;
}

std::size_t FrameReader::count(std::size_t smallest) {
  const std::size_t n = number<std::uint32_t>();
  if (n > rest_.size() / smallest) return fail(), std::size_t{0};
  return n;
}

void FrameReader::require(bool holds) {
  if (!holds) fail();
}

void FrameReader::fail() {
  failed_ = true;
  rest_ = {};
}

Framing next_frame(std::string_view stream, std::size_t longest, Frame& frame) {
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
