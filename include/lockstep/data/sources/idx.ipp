#pragma once

#include "lockstep/data/sources/idx.hpp"

#include <array>
#include <system_error>
#include <utility>

#include "lockstep/core/format_text.hpp"
#include "lockstep/files/byte_reader.hpp"
#include "lockstep/files/file_status.hpp"

namespace lockstep::detail {

/// Reads `count` bytes of the header; throws if the file is shorter.
inline void read_header(ByteReader& file, std::uint8_t* out, std::size_t count) {
  if (file.read(out, count) != count)
    throw DataError(file.path(), "is truncated in its IDX header; fetch it again");
}

}  // namespace lockstep::detail

namespace lockstep {

IdxBytes read_idx(const std::string& path, int rank) {
  const std::string packed = format_text("{}.gz", path);
  const auto is_there = [](const std::string& p) {
    const FileKind kind = file_status(p).kind;
    return kind != FileKind::missing && kind != FileKind::unknown;
  };
  const bool plain_missing = !is_there(path);
  if (plain_missing && !is_there(packed))
    throw FileError(
        path, "cannot be found, with or without .gz; put the file there or pass another folder");
  detail::ByteReader file(plain_missing ? packed : path);

  std::array<std::uint8_t, 4> magic{};
  detail::read_header(file, magic.data(), magic.size());
  const std::array<std::uint8_t, 4> expected{0, 0, 0x08, static_cast<std::uint8_t>(rank)};
  if (magic != expected) {
    const auto listed = [](const std::array<std::uint8_t, 4>& bytes) {
      return format_text("{} {} {} {}", bytes[0], bytes[1], bytes[2], bytes[3]);
    };
    throw DataError(
        file.path(),
        "begins with the bytes {}, but an IDX file of unsigned bytes with {} axes begins with {}; "
        "check that it is the right file",
        listed(magic), rank, listed(expected));
  }
  IdxBytes result;
  result.path = file.path();
  std::uint64_t elements = 1;
  bool too_many = false;
  for (int axis = 0; axis < rank; ++axis) {
    std::array<std::uint8_t, 4> b{};
    detail::read_header(file, b.data(), b.size());
    const std::uint64_t extent = (std::uint64_t{b[0]} << 24) | (std::uint64_t{b[1]} << 16) |
                                 (std::uint64_t{b[2]} << 8) | std::uint64_t{b[3]};
    result.extents.push_back(static_cast<std::size_t>(extent));
    // elements stays at most most(), far below 2^64 / extent, so the product cannot overflow.
    if (extent != 0 && elements > file.most() / extent)
      too_many = true;
    else
      elements *= extent;
  }
  if (too_many && elements != 0)  // a later extent of zero makes the array empty
    throw DataError(
        file.path(),
        "is truncated: its header declares more elements than it can hold; fetch it again");
  result.bytes.resize(static_cast<std::size_t>(elements));
  const std::size_t got = file.read(result.bytes.data(), result.bytes.size());
  if (got != result.bytes.size())
    throw DataError(file.path(), "is truncated: {} of {} elements; fetch it again", got, elements);
  file.expect_end();
  return result;
}

}  // namespace lockstep
