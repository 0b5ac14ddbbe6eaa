/// \file
/// The header of a safetensors file: types, limits, parsing, checks. Invariant: what leaves
/// `parse_safetensors_header` passed every check of the reference reader, in its order, and those
/// that its JSON parser leaves out (keys twice, numbers that are no counts, depth, sizes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/dtype.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::detail {

/// What a header may have. The format itself has no such limits.
struct SafetensorsLimits {
  std::size_t tensors = std::size_t{1} << 20;
  std::size_t name = std::size_t{4} << 10;      ///< bytes
  std::size_t metadata = std::size_t{1} << 20;  ///< bytes, keys and values
  std::size_t depth = 4;
};

/// A type of the format.
struct SafetensorsType {
  std::string_view name;
  unsigned bits;
  std::optional<DType> dtype{};
};

/// Of a table in the order of the reference, which its writer sorts by; nullptr if there is none.
LOCKSTEP_COLD_DECL const SafetensorsType* safetensors_type(std::string_view name);
LOCKSTEP_COLD_DECL const SafetensorsType& safetensors_type(DType dtype);

/// True if `text` is UTF-8: no overlong form, no surrogate, nothing above U+10FFFF.
LOCKSTEP_COLD_DECL bool is_utf8(std::string_view text);

/// A name, which is UTF-8, for a message: in quotes, cut if it is long, its control characters
/// escaped, DEL and those above U+0080 too, which a terminal obeys and JSON lets pass.
LOCKSTEP_COLD_DECL std::string show_name(std::string_view name);

/// Product of `shape` times `bits`; nothing if it is 2^64 or more, in whatever order.
LOCKSTEP_COLD_DECL std::optional<std::uint64_t> bits_of(const std::vector<std::uint64_t>& shape,
                                                        unsigned bits);

struct SafetensorsRecord {
  std::string name;
  const SafetensorsType* type = nullptr;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;
};
struct SafetensorsHeader {
  std::vector<SafetensorsRecord> tensors;  ///< in the order of their bytes
  std::map<std::string, std::string> metadata;
};

/// Parses and checks the header of a file whose tensors' bytes are `body` bytes long.
/// \throws WeightsError, which names the check that failed.
LOCKSTEP_COLD_DECL SafetensorsHeader parse_safetensors_header(const std::string& path,
                                                              std::string_view text,
                                                              std::uint64_t body,
                                                              const SafetensorsLimits& limits = {});

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/files/safetensors_header.ipp"
#endif
