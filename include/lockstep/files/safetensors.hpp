/// \file
/// Weights files in the safetensors format. Invariants: a SafetensorsFile exists only after all
/// checks passed, so the byte spans of its tensors lie within the file and cover it without gaps or
/// overlaps; no file, however hostile, makes the reader allocate more than a constant times its
/// size. Source: safetensors/src/tensor.rs of the reference implementation.
/// \code
///   bytes   0          8            8 + n           8 + n + m
///           | n: u64   | JSON, n    | tensors, m    |
///           +----------+------------+---------------+
///   JSON    {"__metadata__": {"key": "value"},
///            "kernel": {"dtype": "F32", "shape": [3, 3], "data_offsets": [0, 36]}, ...}
/// \endcode
/// data_offsets count from 8 + n. All numbers are little-endian.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/dtype.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

static_assert(std::endian::native == std::endian::little,
              "lockstep::SafetensorsFile: the format is little-endian and this processor is not; "
              "use a little-endian processor");

/// A tensor of a file. Its span is valid as long as the file object.
struct SafetensorsTensor {
  std::string name;
  std::string dtype_name;            ///< as in the file: "F32"
  std::optional<DType> dtype;        ///< empty: a type of the format that lockstep does not support
                                     ///< ("F8_E4M3")
  std::vector<std::uint64_t> shape;  ///< empty: a scalar
  std::span<const std::byte> bytes{};  ///< row-major, little-endian, unaligned
};

/// A tensor to write.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::float32;
  std::vector<std::uint64_t> shape;
  std::span<const std::byte> bytes;
};

namespace detail {
struct SafetensorsHeader;

/// The header of a file of `size` bytes that begins with `begin`, which has all of the header. `body`:
/// where the bytes of the tensors begin. \throws WeightsError if it is not a valid safetensors file.
LOCKSTEP_COLD_DECL SafetensorsHeader read_safetensors_head(const std::string& path,
                                                           const std::vector<std::byte>& begin,
                                                           std::uint64_t size, std::uint64_t limit,
                                                           std::size_t& body);

/// The content of a file before its tensors' bytes: the length of the header, and the header.
/// Sorts `tensors` into the order in which their bytes follow. \throws UsageError as below.
LOCKSTEP_COLD_DECL std::string safetensors_head(const std::string& path,
                                                std::vector<SafetensorsEntry>& tensors,
                                                const std::map<std::string, std::string>& metadata);

/// The header of a file with `tensors` in this order. \throws UsageError if a name, the metadata or
/// the size of a tensor is invalid, or a limit of the reader is exceeded.
LOCKSTEP_COLD_DECL std::string safetensors_header(
    const std::string& path, const std::vector<SafetensorsEntry>& tensors,
    const std::map<std::string, std::string>& metadata);
}  // namespace detail

/// A complete safetensors file in memory. Movable but not copyable: the `bytes` of its tensors are
/// views of it.
/// \code
///   auto file = lockstep::SafetensorsFile::read("weights.safetensors");
///   for (const auto& tensor : file.tensors()) std::puts(tensor.name.c_str());
///   std::vector<float> kernel = file.values<float>("conv2d/kernel");
/// \endcode
class SafetensorsFile {
 public:
  /// Default limit of the header's size in bytes, that of the reference implementation.
  static constexpr std::uint64_t import_limit = 100'000'000;

  // A move keeps the address of body_, which the tensors refer to; a copy would not.
  SafetensorsFile(SafetensorsFile&&) noexcept = default;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept = default;

  /// Reads and checks a file. The tensors' bytes are read only after the header has passed its
  /// checks.
  /// \throws FileError if the file cannot be read; WeightsError, which names the failed check, if
  /// it is not a valid safetensors file.
  LOCKSTEP_COLD_DECL static SafetensorsFile read(const std::string& path,
                                                 std::uint64_t header_limit = import_limit);

  /// The same for a file's content that is already in memory; `path` is used in messages.
  /// \throws WeightsError if it is not a valid safetensors file.
  LOCKSTEP_COLD_DECL static SafetensorsFile parse(const std::string& path,
                                                  std::vector<std::byte> content,
                                                  std::uint64_t header_limit = import_limit);

  const std::string& path() const { return path_; }
  /// Tensors in the order of their offsets.
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// The tensor, or null.
  LOCKSTEP_DECL const SafetensorsTensor* find(std::string_view name) const;
  /// The tensor. \throws WeightsError if there is no tensor of this name.
  LOCKSTEP_COLD_DECL const SafetensorsTensor& at(std::string_view name) const;
  /// The bytes of a tensor whose type in the file is exactly `type`, valid as long as the file
  /// object.
  /// \throws WeightsError if the tensor is missing or of another type.
  LOCKSTEP_COLD_DECL std::span<const std::byte> bytes(std::string_view name, DType type) const;
  /// A copy of the elements of a tensor whose type in the file is exactly T.
  /// \throws WeightsError if the tensor is missing or of another type.
  template <class T>
  std::vector<T> values(std::string_view name) const {
    constexpr bool is_number = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;
    static_assert(is_number,
                  "lockstep::SafetensorsFile: values() reads numbers; use bytes() for other types");
    if constexpr (is_number) {
      const std::span<const std::byte> found = bytes(name, dtype_of<T>);
      std::vector<T> result(found.size() / sizeof(T));
      if (!result.empty()) std::memcpy(result.data(), found.data(), found.size());
      return result;
    }
  }

 private:
  /// `body`: the tensors' bytes, from `first` on.
  LOCKSTEP_COLD_DECL SafetensorsFile(std::string path, detail::SafetensorsHeader header,
                                     std::vector<std::byte> body, std::size_t first = 0);
  [[noreturn]] LOCKSTEP_COLD_DECL void refuse(const SafetensorsTensor& tensor, DType wanted) const;

  std::string path_;
  std::vector<std::byte> body_;
  std::vector<SafetensorsTensor> tensors_;
  std::vector<std::size_t> by_name_;
  std::map<std::string, std::string> metadata_;
};

/// Writes a file atomically, with the tensors in the order of the reference writer (larger element
/// types first, then by name) and the header padded with spaces to a multiple of 8 bytes. \throws
/// UsageError for a duplicate or invalid name, or bytes that do not match their shape; FileError if
/// the file cannot be written.
/// \code
///   std::vector<float> kernel(9 * 32);
///   lockstep::write_safetensors("weights.safetensors",
///       {{"conv2d/kernel", lockstep::DType::float32, {3, 3, 1, 32},
///         std::as_bytes(std::span(kernel))}}, {{"format", "lockstep"}});
/// \endcode
LOCKSTEP_COLD_DECL void write_safetensors(const std::string& path,
                                          std::vector<SafetensorsEntry> tensors,
                                          const std::map<std::string, std::string>& metadata = {});

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/files/safetensors.ipp"
#endif
