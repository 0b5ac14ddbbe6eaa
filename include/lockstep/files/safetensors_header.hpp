/// \file
/// The header of a safetensors file: types, limits, parsing and validation. Invariant: a header
/// returned by `parse_safetensors_header` passed all checks of the reference reader, in the same
/// order, plus those that its JSON parser lacks (duplicate keys, numbers that are not counts,
/// depth, sizes).
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

/// Limits for headers of any origin. The format itself has none.
struct SafetensorsLimits {
  std::size_t tensors = std::size_t{1} << 20;
  std::size_t values_per_tensor = 20;           ///< on average, keys included; a matrix has 12
  std::size_t name = std::size_t{4} << 10;      ///< bytes
  std::size_t metadata = std::size_t{1} << 20;  ///< bytes, keys and values
  std::size_t depth = 4;
};

/// An element type of the format.
struct SafetensorsType {
  std::string_view name;
  unsigned bits;
  std::optional<DType> dtype{};
};

/// Finds a type in a table with the order of the reference, which the writer sorts by; null if
/// there is none.
LOCKSTEP_COLD_DECL const SafetensorsType* safetensors_type(std::string_view name);
LOCKSTEP_COLD_DECL const SafetensorsType& safetensors_type(DType dtype);

/// Product of `shape` and `bits`; empty if it, or a partial product, is 2^64 or more.
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
