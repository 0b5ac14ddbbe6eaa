#pragma once

#include "lockstep/tensorboard/png.hpp"

#include <zlib.h>

#include <array>
#include <string_view>

#include "lockstep/core/error.hpp"

namespace lockstep::detail {

/// Appends a number, its highest byte first.
[[gnu::cold]] inline void append_big_endian(std::string& to, std::uint32_t number) {
  for (int shift = 24; shift >= 0; shift -= 8)
    to += static_cast<char>(static_cast<unsigned char>(number >> shift));
}

[[gnu::cold]] inline void append_chunk(std::string& to, std::string_view type,
                                       std::string_view data) {
  append_big_endian(to, static_cast<std::uint32_t>(data.size()));
  const std::size_t begin = to.size();
  to.append(type).append(data);
  append_big_endian(
      to, static_cast<std::uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(to.data() + begin),
                                             static_cast<uInt>(to.size() - begin))));
}

std::string encode_png(const Shape& image, std::span<const std::uint8_t> pixels) {
  if (image.rank != 3 || image.size() == 0 || image[2] > 4)
    throw UsageError(
        "image: the shape is {}; it must be (height, width, channels), 1 to 4 channels",
        to_string(image));
  if (pixels.size() != image.size())
    throw UsageError("image: shape {} has {} values, not {}", to_string(image), image.size(),
                     pixels.size());
  const auto height = static_cast<std::size_t>(image[0]);
  const std::size_t row = image.size() / height;
  std::string lines;
  lines.reserve(height * (row + 1));
  for (std::size_t y = 0; y < height; ++y) {
    lines += '\0';  // no filter
    lines.append(reinterpret_cast<const char*>(pixels.data() + y * row), row);
  }
  uLongf size = ::compressBound(lines.size());
  std::string packed(size, '\0');
  if (::compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                  reinterpret_cast<const Bytef*>(lines.data()), lines.size(),
                  Z_DEFAULT_COMPRESSION) != Z_OK)
    throw Error("image: zlib cannot compress {} bytes; free memory", lines.size());
  packed.resize(size);

  constexpr std::array color_type{0, 4, 2, 6};  // by the number of channels
  std::string header;
  append_big_endian(header, static_cast<std::uint32_t>(image[1]));
  append_big_endian(header, static_cast<std::uint32_t>(image[0]));
  header += '\x08';
  header += static_cast<char>(color_type[static_cast<std::size_t>(image[2]) - 1]);
  header.append(3, '\0');  // compression, filter and interlace methods
  std::string png("\x89PNG\r\n\x1a\n", 8);
  append_chunk(png, "IHDR", header);
  append_chunk(png, "IDAT", packed);
  append_chunk(png, "IEND", {});
  return png;
}

}  // namespace lockstep::detail
