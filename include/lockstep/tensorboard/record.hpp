/// \file
/// The frame of a record in TensorBoard's event files, which is TFRecord's. Invariant: a reader
/// detects a record that was only partly written.
///
///     | length, 8 bytes | masked CRC of the length, 4 | data | masked CRC of the data, 4 |
///
/// All numbers are little-endian. Source: tensorboard/backend/event_processing and
/// tensorflow/core/lib/io/record_writer.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// The CRC32C of `bytes`, rotated right by 15 bits, plus a constant: so that the CRC of data which
/// contain CRCs is not degenerate.
/// \code
///   masked_crc32c("123456789") == 0xC78AB0E5
/// \endcode
LOCKSTEP_DECL std::uint32_t masked_crc32c(std::string_view bytes);

/// Appends `data` as a record.
LOCKSTEP_DECL void append_record(std::string& to, std::string_view data);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/tensorboard/record.ipp"
#endif
