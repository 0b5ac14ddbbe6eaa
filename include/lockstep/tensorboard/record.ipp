#pragma once

#include "lockstep/tensorboard/record.hpp"

#include <concepts>
#include <cstddef>

#include "lockstep/core/crc32c.hpp"

namespace lockstep::detail {

std::uint32_t masked_crc32c(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes.data(), bytes.size());
  return (crc >> 15 | crc << 17) + 0xA282'EAD8;
}

/// Appends a number, its lowest byte first.
void append_little_endian(std::string& to, std::unsigned_integral auto number) {
  for (std::size_t i = 0; i < sizeof number; ++i)
    to += static_cast<char>(static_cast<unsigned char>(number >> (8 * i)));
}

void append_record(std::string& to, std::string_view data) {
  const std::size_t begin = to.size();
  append_little_endian(to, std::uint64_t{data.size()});
  append_little_endian(to, masked_crc32c(std::string_view(to).substr(begin)));
  to += data;
  append_little_endian(to, masked_crc32c(data));
}

}  // namespace lockstep::detail
