/// \file
/// Numbers as text, in Keras' format and as JSON. Invariants: independent of the locale; JSON
/// numbers read back as the same double.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// A metric: "0.5432", or "5.0000e-04" if the magnitude is at most 0.001.
LOCKSTEP_COLD_DECL std::string format_metric(double value);

/// Remaining time: "12s", "2:05" above a minute, "1:00:05" above an hour.
LOCKSTEP_COLD_DECL std::string format_eta(double seconds);

/// Duration of one step: "2s/step", "12ms/step" or "450us/step".
LOCKSTEP_COLD_DECL std::string format_step_time(double seconds);

/// A count with thousands separators: "347,146".
LOCKSTEP_COLD_DECL std::string format_count(std::uint64_t count);

/// Bytes as in Keras' summary: "1.32 MB", in steps of 1024.
LOCKSTEP_COLD_DECL std::string format_bytes(std::uint64_t bytes);

/// The shortest text that reads back as `value`. By std::to_chars, since fmt writes large floats
/// differently from version to version, and the processes of a job compare such texts.
LOCKSTEP_COLD_DECL std::string shortest_number(float value);
LOCKSTEP_COLD_DECL std::string shortest_number(double value);

/// `shortest_number`, or "null" for NaN and infinity, which JSON does not have.
LOCKSTEP_COLD_DECL std::string json_number(double value);

/// The shortest text that reads back as `value`, in Python's notation: "1.0", "1e-05", "nan".
LOCKSTEP_COLD_DECL std::string python_number(double value);

/// `text` as a JSON string, with quotes and escapes.
LOCKSTEP_COLD_DECL std::string json_string(std::string_view text);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/core/format_numbers.ipp"
#endif
