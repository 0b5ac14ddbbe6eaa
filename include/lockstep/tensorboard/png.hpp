/// \file
/// Images as PNG files in memory, compressed by zlib. Invariant: decoding gives every pixel back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "lockstep/core/config.hpp"
#include "lockstep/core/shape.hpp"

namespace lockstep::detail {

/// A PNG file with 8 bits per channel. `image`: (height, width, channels), with 1 channel (grey), 2
/// (grey and alpha), 3 (RGB) or 4 (RGBA); `pixels`: row by row. Source: PNG, third edition (W3C).
/// \throws UsageError if the shape is not that of an image, or not that of `pixels`.
LOCKSTEP_COLD_DECL std::string encode_png(const Shape& image, std::span<const std::uint8_t> pixels);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/tensorboard/png.ipp"
#endif
