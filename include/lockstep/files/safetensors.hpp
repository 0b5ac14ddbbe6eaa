/// \file
/// Weights files in the safetensors format. Invariants: a SafetensorsFile was checked whole before
/// it exists, so its byte spans lie inside the file and cover it without gap or overlap; nothing in
/// a file, however hostile, makes the reader allocate more than the file's size times a constant.
/// Source: safetensors/src/tensor.rs of the reference implementation.
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

/// A tensor of a file. Its spans live as long as the file.
struct SafetensorsTensor {
  std::string name;
  std::string dtype_name;            ///< as in the file: "F32"
  std::optional<DType> dtype;        ///< nothing: known to the format, not to lockstep ("F8_E4M3")
  std::vector<std::uint64_t> shape;  ///< empty: a single number
  std::span<const std::byte> bytes{};  ///< row-major, little-endian, of any alignment
};

/// A tensor to be written.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::float32;
  std::vector<std::uint64_t> shape;
  std::span<const std::byte> bytes;
};

namespace detail {
struct SafetensorsHeader;

/// The header of `tensors` in this order. \throws UsageError for what no reader would take.
LOCKSTEP_COLD_DECL std::string safetensors_header(
    const std::string& path, const std::vector<SafetensorsEntry>& tensors,
    const std::map<std::string, std::string>& metadata);
}  // namespace detail

/// A whole safetensors file in memory. Movable, not copyable: its tensors' `bytes` are views of it.
/// \code
///   auto file = lockstep::SafetensorsFile::read("weights.safetensors");
///   for (const auto& tensor : file.tensors()) std::puts(tensor.name.c_str());
///   std::vector<float> kernel = file.values<float>("conv2d/kernel");
/// \endcode
class SafetensorsFile {
 public:
  /// Largest header of a file of any origin.
  static constexpr std::uint64_t import_limit = 100'000'000;

  // Tensors are views of body_: a move keeps its address, a copy would not.
  SafetensorsFile(SafetensorsFile&&) noexcept = default;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept = default;

  /// Reads and checks everything; the tensors' bytes only after the header proved sound.
  /// \throws FileError if the file cannot be read, WeightsError, with the check that failed, if it
  /// is no sound safetensors file.
  LOCKSTEP_COLD_DECL static SafetensorsFile read(const std::string& path,
                                                 std::uint64_t header_limit = import_limit);

  const std::string& path() const { return path_; }
  /// In the order of their bytes.
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// The tensor, or nullptr.
  LOCKSTEP_DECL const SafetensorsTensor* find(std::string_view name) const;
  /// \throws WeightsError if there is no tensor of that name.
  LOCKSTEP_COLD_DECL const SafetensorsTensor& at(std::string_view name) const;
  /// The bytes of a tensor whose type in the file is exactly `type`; they live as long as the file.
  /// \throws WeightsError if the tensor is missing or of another type.
  LOCKSTEP_COLD_DECL std::span<const std::byte> bytes(std::string_view name, DType type) const;
  /// The elements of a tensor whose type in the file is exactly T.
  /// \throws WeightsError if the tensor is missing or of another type.
  template <class T>
  std::vector<T> values(std::string_view name) const {
    constexpr bool is_number = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;
    static_assert(is_number,
                  "lockstep::SafetensorsFile: values() reads numbers; take the bytes of others");
    if constexpr (is_number) {
      const std::span<const std::byte> found = bytes(name, dtype_of<T>);
      std::vector<T> result(found.size() / sizeof(T));
      if (!result.empty()) std::memcpy(result.data(), found.data(), found.size());
      return result;
    }
  }

 private:
  LOCKSTEP_COLD_DECL SafetensorsFile(std::string path, detail::SafetensorsHeader header,
                                     std::vector<std::byte> body);
  [[noreturn]] LOCKSTEP_COLD_DECL void refuse(const SafetensorsTensor& tensor, DType wanted) const;

  std::string path_;
  std::vector<std::byte> body_;
  std::vector<SafetensorsTensor> tensors_;
  std::vector<std::size_t> by_name_;
  std::map<std::string, std::string> metadata_;
};

/// Writes `tensors` atomically, in the order of the reference writer: larger elements first, then
/// by name; the header is padded with spaces to a multiple of eight bytes. \throws UsageError for a
/// name twice, a name that the format refuses, or bytes that do not fit their shape; FileError if
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
