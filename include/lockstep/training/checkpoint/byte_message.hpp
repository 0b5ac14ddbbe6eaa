/// \file
/// A message of several byte strings, which one process sends to the others. Invariant: a message
/// that is too short is refused, never read beyond its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/error.hpp"

namespace lockstep::detail {

/// Byte strings, one after the other, each after its length.
class ByteMessage {
 public:
  void add(std::span<const std::byte> part) {
    const std::uint64_t size = part.size();
    const auto* const first = reinterpret_cast<const std::byte*>(&size);
    bytes.insert(bytes.end(), first, first + sizeof size);
    bytes.insert(bytes.end(), part.begin(), part.end());
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text.data(), text.size()))); }
  /// Replaces the parts by an error.
  void set_error(std::string_view kind, std::string_view what) {
    bytes.clear();
    add(kind);
    add(what);
  }
  bool has_next() const { return at_ < bytes.size(); }
  /// \throws Error if the message is incomplete.
  std::vector<std::byte> next() {
    std::uint64_t size = 0;
    const auto has = [&](std::uint64_t count) { return count <= bytes.size() - at_; };
    if (has(sizeof size)) std::memcpy(&size, bytes.data() + at_, sizeof size);
    if (!has(sizeof size) || !has(size) || !has(sizeof size + size))
      throw Error("checkpoint: a message between processes is incomplete; restart the job");
    const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(at_ + sizeof size);
    at_ += sizeof size + static_cast<std::size_t>(size);
    return {first, first + static_cast<std::ptrdiff_t>(size)};
  }
  std::string next_text() {
    const std::vector<std::byte> part = next();
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }

  std::vector<std::byte> bytes;

 private:
  std::size_t at_ = 0;
};

}  // namespace lockstep::detail
