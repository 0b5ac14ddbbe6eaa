// Gzip for the fuzzers, around any deflate data, so that a checksum does not keep them out.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace fuzz {

/// The deflate data of `bytes`.
inline std::string deflated(const std::uint8_t* bytes, std::size_t size) {
  z_stream stream{};
  deflateInit2(&stream, 1, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, size), '\0');
  stream.next_in = const_cast<std::uint8_t*>(bytes);
  stream.avail_in = static_cast<uInt>(size);
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

/// The content of `data` if it is exactly one complete deflate stream.
inline std::optional<std::string> inflated(const std::uint8_t* data, std::size_t size) {
  z_stream stream{};
  inflateInit2(&stream, -MAX_WBITS);
  std::string out(size * 1032 + 1, '\0');
  stream.next_in = const_cast<std::uint8_t*>(data);
  stream.avail_in = static_cast<uInt>(size);
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const bool whole = inflate(&stream, Z_FINISH) == Z_STREAM_END && stream.avail_in == 0;
  out.resize(stream.total_out);
  inflateEnd(&stream);
  return whole ? std::optional(out) : std::nullopt;
}

/// The content of a gzip file with one or more complete members, each optionally followed by zeros.
inline std::optional<std::string> gunzipped(const std::string& file) {
  z_stream stream{};
  inflateInit2(&stream, 16 + MAX_WBITS);
  std::string out(file.size() * 1032 + 1, '\0'), input = file;
  stream.next_in = reinterpret_cast<Bytef*>(input.data());
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  bool whole = false;
  while (!whole && inflate(&stream, Z_FINISH) == Z_STREAM_END) {
    for (; stream.avail_in > 0 && *stream.next_in == 0; --stream.avail_in) ++stream.next_in;
    whole = stream.avail_in == 0;
    inflateReset(&stream);
  }
  out.resize(out.size() - stream.avail_out);
  inflateEnd(&stream);
  return whole ? std::optional(out) : std::nullopt;
}

/// A gzip member of these deflate data, with the checksum and the length of `bytes`.
inline std::string gzip(const std::string& deflate_data, const void* bytes, std::size_t size) {
  std::string member("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10);
  member += deflate_data;
  const auto checksum = crc32(0, static_cast<const Bytef*>(bytes), static_cast<uInt>(size));
  for (const std::uint64_t number : {std::uint64_t{checksum}, std::uint64_t{size}})
    for (int byte = 0; byte < 4; ++byte) member += static_cast<char>((number >> (8 * byte)) & 0xff);
  return member;
}

}  // namespace fuzz
