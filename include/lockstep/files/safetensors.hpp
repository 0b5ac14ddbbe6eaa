/// \file
/// Weights files in the safetensors format. Invariants: a SafetensorsFile was checked whole before
/// it exists, so its byte spans lie inside the file and cover it without gap or overlap; nothing in
/// a file, however hostile, makes the reader allocate more than the file's size times a constant.
/// What reads and writes is a template, so that only a program that does so compiles it.
/// Source: safetensors/src/tensor.rs of the reference implementation.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "lockstep/core/dtype.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/files/atomic_file.hpp"
#include "lockstep/files/safetensors_header.hpp"

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
/// A regular file that is open for reading.
class InputFile {
 public:
  explicit InputFile(const std::string& path)
      // O_NONBLOCK: opening a FIFO would wait for a writer; it changes nothing for regular files.
      : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (descriptor_ < 0) fail("cannot be read", "check the path and its permissions");
    struct ::stat facts{};
    if (::fstat(descriptor_, &facts) != 0 || !S_ISREG(facts.st_mode)) {
      ::close(descriptor_);
      throw FileError(path_, "it is no regular file; give the path of a safetensors file");
    }
    size_ = static_cast<std::uint64_t>(facts.st_size);
  }
  ~InputFile() { ::close(descriptor_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::uint64_t size() const { return size_; }
  /// The next `count` bytes.
  std::vector<std::byte> next(std::size_t count) {
    std::vector<std::byte> bytes(count);
    for (std::size_t done = 0; done < count;) {
      // Linux moves at most 2 GiB a call.
      const ssize_t n =
          ::read(descriptor_, bytes.data() + done, std::min(count - done, std::size_t{1} << 30));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("cannot be read", "check the disk");
      if (n == 0) throw FileError(path_, "it became shorter while it was read; read it again");
      done += static_cast<std::size_t>(n);
    }
    return bytes;
  }

 private:
  [[noreturn]] void fail(std::string_view fact, std::string_view remedy) const {
    throw FileError(path_, {fact, " (", std::generic_category().message(errno), "); ", remedy});
  }

  const std::string& path_;
  int descriptor_;
  std::uint64_t size_ = 0;
};
}  // namespace detail

/// A whole safetensors file in memory. Movable, not copyable: its tensors' `bytes` are views of it.
/// \code
///   auto file = lockstep::SafetensorsFile::read("weights.safetensors");
///   for (const auto& tensor : file.tensors()) std::puts(tensor.name.c_str());
///   std::vector<float> kernel = file.values<float>("conv2d/kernel");
/// \endcode
class SafetensorsFile {
 public:
  /// Largest header of a file of any origin, and of a checkpoint that lockstep wrote.
  static constexpr std::uint64_t import_limit = 100'000'000, checkpoint_limit = 16u << 20;

  // Tensors are views of body_: a move keeps its address, a copy would not.
  SafetensorsFile(SafetensorsFile&&) noexcept = default;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept = default;

  /// Reads and checks everything; the tensors' bytes only after the header proved sound.
  /// \throws FileError if the file cannot be read, WeightsError, with the check that failed, if it
  /// is no sound safetensors file.
  template <class Header = detail::SafetensorsHeader>
  static SafetensorsFile read(const std::string& path, std::uint64_t header_limit = import_limit) {
    detail::InputFile input(path);
    const auto refuse = [&path](const std::string& fact) {
      throw WeightsError(path, {fact, "; the file is damaged or no safetensors file"});
    };
    std::uint64_t length = 0;
    if (input.size() < sizeof length)
      refuse("it has " + std::to_string(input.size()) +
             " bytes, the header's length alone takes 8");
    std::memcpy(&length, input.next(sizeof length).data(), sizeof length);
    if (length > header_limit)
      refuse("its header would have " + std::to_string(length) + " bytes, more than the limit of " +
             std::to_string(header_limit));
    const std::uint64_t rest = input.size() - sizeof length;
    if (length > rest)
      refuse("its header would have " + std::to_string(length) + " bytes, the file has " +
             std::to_string(rest) + " after the length (it was cut off)");
    const auto text = input.next(static_cast<std::size_t>(length));
    auto header = detail::parse_safetensors_header<Header>(
        path, {reinterpret_cast<const char*>(text.data()), text.size()}, rest - length);
    return SafetensorsFile(path, std::move(header),
                           input.next(static_cast<std::size_t>(rest - length)));
  }

  const std::string& path() const { return path_; }
  /// In the order of their bytes.
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// The tensor, or nullptr.
  const SafetensorsTensor* find(std::string_view name) const {
    const auto at = std::lower_bound(
        by_name_.begin(), by_name_.end(), name,
        [this](std::size_t i, std::string_view wanted) { return tensors_[i].name < wanted; });
    return at != by_name_.end() && tensors_[*at].name == name ? &tensors_[*at] : nullptr;
  }
  /// \throws WeightsError if there is no tensor of that name.
  const SafetensorsTensor& at(std::string_view name) const {
    if (const auto* tensor = find(name)) return *tensor;
    throw WeightsError(path_, {"there is no tensor '", name, "' among its ", tensors_.size(),
                               "; check that the file belongs to this model"});
  }
  /// The elements of a tensor whose type in the file is exactly T.
  /// \throws WeightsError if the tensor is missing or of another type.
  template <class T>
  std::vector<T> values(std::string_view name) const {
    constexpr bool is_number = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;
    static_assert(is_number,
                  "lockstep::SafetensorsFile: values() reads numbers; take the bytes of others");
    if constexpr (is_number) {
      const auto& tensor = at(name);
      if (tensor.dtype != dtype_of<T>)
        throw WeightsError(path_,
                           "tensor '" + tensor.name + "' is " + tensor.dtype_name + ", not " +
                               std::string(detail::safetensors_type(dtype_of<T>).name) +
                               (tensor.dtype ? "" : " (a type that lockstep cannot compute)") +
                               "; convert the file");
      std::vector<T> result(tensor.bytes.size() / sizeof(T));
      if (!result.empty()) std::memcpy(result.data(), tensor.bytes.data(), tensor.bytes.size());
      return result;
    }
  }

 private:
  template <class Header>
  SafetensorsFile(std::string path, Header header, std::vector<std::byte> body)
      : path_(std::move(path)), body_(std::move(body)), metadata_(std::move(header.metadata)) {
    tensors_.reserve(header.tensors.size());
    for (auto& record : header.tensors)
      tensors_.push_back({std::move(record.name), std::string(record.type->name),
                          record.type->dtype, std::move(record.shape),
                          std::span<const std::byte>(body_).subspan(
                              static_cast<std::size_t>(record.begin),
                              static_cast<std::size_t>(record.end - record.begin))});
    by_name_.resize(tensors_.size());
    for (std::size_t i = 0; i < by_name_.size(); ++i) by_name_[i] = i;
    std::sort(by_name_.begin(), by_name_.end(),
              [this](std::size_t a, std::size_t b) { return tensors_[a].name < tensors_[b].name; });
  }

  std::string path_;
  std::vector<std::byte> body_;
  std::vector<SafetensorsTensor> tensors_;
  std::vector<std::size_t> by_name_;
  std::map<std::string, std::string> metadata_;
};

namespace detail {
/// The header of `tensors` in this order. \throws UsageError for what no reader would take.
template <class Entry>
std::string safetensors_header(const std::string& path, const std::vector<Entry>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  const auto refuse = [&path](const std::string& fact) { throw UsageError({path, ": ", fact}); };
  std::string text = "{";
  std::size_t metadata_bytes = 0;
  for (const auto& [key, value] : metadata) {
    metadata_bytes += key.size() + value.size();
    if (!is_utf8(key) || !is_utf8(value))
      refuse("metadata " + show_name(key) + " is not UTF-8; encode it");
    text += text.size() == 1 ? "\"__metadata__\":{" : ",";
    text += json_string(key) + ":" + json_string(value);
  }
  if (metadata_bytes > SafetensorsLimits{}.metadata)
    refuse("the metadata take more than 1 MiB; put them into a tensor or another file");
  if (!metadata.empty()) text += "}";

  std::unordered_set<std::string> names;
  std::uint64_t offset = 0;
  for (const auto& tensor : tensors) {
    const auto& type = safetensors_type(tensor.dtype);
    const std::string name = "tensor " + show_name(tensor.name);
    if (tensor.name == "__metadata__" || tensor.name.size() > SafetensorsLimits{}.name ||
        tensor.name.find('\0') != std::string::npos || !is_utf8(tensor.name))
      refuse(name +
             " cannot have this name; use UTF-8 without NUL, at most 4 KiB, not __metadata__");
    if (!names.insert(tensor.name).second) refuse(name + " is there twice; give each its own name");
    const auto bits = bits_of(tensor.shape, type.bits);
    if (!bits || *bits / 8 != tensor.bytes.size())
      refuse(name + " has " + std::to_string(tensor.bytes.size()) +
             " bytes, which do not fit its shape and type; check both");
    // One += a part: of "," + std::string g++ 12 believes that it may overlap.
    if (text.size() > 1) text += ",";
    text += json_string(tensor.name);
    text += ":{\"dtype\":\"";
    text += type.name;
    text += "\",\"shape\":[";
    for (std::size_t axis = 0; axis < tensor.shape.size(); ++axis) {
      if (axis > 0) text += ",";
      text += std::to_string(tensor.shape[axis]);
    }
    text += "],\"data_offsets\":[" + std::to_string(offset) + ",";
    offset += tensor.bytes.size();
    text += std::to_string(offset) + "]}";
  }
  if (tensors.size() > SafetensorsLimits{}.tensors)
    refuse("more than 2^20 tensors; use several files");
  text += "}";
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > SafetensorsFile::import_limit)
    refuse("the header takes more than 100 MB, which no reader takes; use several files");
  return text;
}
}  // namespace detail

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
template <class Entry = SafetensorsEntry>
void write_safetensors(const std::string& path, std::vector<Entry> tensors,
                       const std::map<std::string, std::string>& metadata = {}) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    const auto *type_a = &detail::safetensors_type(a.dtype),
               *type_b = &detail::safetensors_type(b.dtype);
    return type_a != type_b ? type_a > type_b : a.name < b.name;
  });
  const std::string header = detail::safetensors_header(path, tensors, metadata);
  std::array<std::byte, 8> length{};
  const std::uint64_t n = header.size();
  std::memcpy(length.data(), &n, sizeof n);

  AtomicFile file(path);
  file.write(length);
  file.write(header);
  for (const auto& tensor : tensors) file.write(tensor.bytes);
  file.commit();
}

}  // namespace lockstep
