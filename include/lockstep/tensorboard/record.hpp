/// \file
/// The frame of a record in TensorBoard's event files, which is TFRecord's. Invariant: a reader
/// detects a record that was only partly written.
///
///     | length, 8 bytes | masked CRC of the length, 4 | data | masked CRC of the data, 4 |
///
/// All numbers are little-endian. Source: tensorboard/backend/event_processing and
/// tensorflow/core/lib/io/record_writer.h.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/core/numbers/crc32c.hpp"

namespace lockstep::detail {

/// The CRC32C of `bytes`, rotated right by 15 bits, plus a constant: so that the CRC of data which
/// contain CRCs is not degenerate.
/// \code
///   masked_crc32c("123456789") == 0xC78AB0E5
/// \endcode
inline std::uint32_t masked_crc32c(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes.data(), bytes.size());
  return (crc >> 15 | crc << 17) + 0xA282'EAD8;
}

/// Appends a number, its lowest byte first.
void append_little_endian(std::string& to, std::unsigned_integral auto number) {
  for (std::size_t i = 0; i < sizeof number; ++i)
    to += static_cast<char>(static_cast<unsigned char>(number >> (8 * i)));
}

/// Appends `data` as a record.
inline void append_record(std::string& to, std::string_view data) {
  const std::size_t begin = to.size();
  append_little_endian(to, std::uint64_t{data.size()});
  append_little_endian(to, masked_crc32c(std::string_view(to).substr(begin)));
  to += data;
  append_little_endian(to, masked_crc32c(data));
}

}  // namespace lockstep::detail
