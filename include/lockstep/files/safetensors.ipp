#pragma once

#include "lockstep/files/safetensors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "lockstep/core/fmt_core.hpp"
#include "lockstep/core/format_numbers.hpp"
#include "lockstep/files/atomic_file.hpp"
#include "lockstep/files/safetensors_header.hpp"

namespace lockstep::detail {

/// A regular file opened for sequential reading.
class InputFile {
 public:
  explicit InputFile(const std::string& path)
      // O_NONBLOCK: opening a FIFO would block until it has a writer; no effect on regular files.
      : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (descriptor_ < 0) fail("cannot be read", "check the path and its permissions");
    struct ::stat facts{};
    if (::fstat(descriptor_, &facts) != 0 || !S_ISREG(facts.st_mode)) {
      ::close(descriptor_);
      throw FileError(path_, "it is not a regular file; give the path of a safetensors file");
    }
    size_ = static_cast<std::uint64_t>(facts.st_size);
  }
  ~InputFile() { ::close(descriptor_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::uint64_t size() const { return size_; }
  /// Reads the next `count` bytes. \throws FileError if the file is shorter or cannot be read.
  std::vector<std::byte> next(std::size_t count) {
    std::vector<std::byte> bytes(count);
    for (std::size_t done = 0; done < count;) {
      // Linux transfers at most 2 GiB per call.
      const ssize_t n =
          ::read(descriptor_, bytes.data() + done, std::min(count - done, std::size_t{1} << 30));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("cannot be read", "check the disk");
      if (n == 0) throw FileError(path_, "it was truncated while it was being read; read it again");
      done += static_cast<std::size_t>(n);
    }
    return bytes;
  }

 private:
  [[noreturn]] void fail(std::string_view fact, std::string_view remedy) const {
    throw FileError(path_, "{} ({}); {}", fact, std::generic_category().message(errno), remedy);
  }

  const std::string& path_;
  int descriptor_;
  std::uint64_t size_ = 0;
};

}  // namespace lockstep::detail

namespace lockstep {

SafetensorsFile SafetensorsFile::read(const std::string& path, std::uint64_t header_limit) {
  detail::InputFile input(path);
  const auto refuse = [&path](const std::string& fact) {
    throw WeightsError(path, "{}; the file is damaged or is not a safetensors file", fact);
  };
  std::uint64_t length = 0;
  if (input.size() < sizeof length)
    refuse(fmt::format("it has {} bytes, fewer than the 8 of the header length", input.size()));
  std::memcpy(&length, input.next(sizeof length).data(), sizeof length);
  if (length > header_limit)
    refuse(fmt::format("its header length is {} bytes, more than the limit of {}", length,
                       header_limit));
  const std::uint64_t rest = input.size() - sizeof length;
  if (length > rest)
    refuse(fmt::format(
        "its header length is {} bytes, but the file has only {} more (it is truncated)", length,
        rest));
  const auto text = input.next(static_cast<std::size_t>(length));
  auto header = detail::parse_safetensors_header(
      path, {reinterpret_cast<const char*>(text.data()), text.size()}, rest - length);
  return SafetensorsFile(path, std::move(header),
                         input.next(static_cast<std::size_t>(rest - length)));
}

const SafetensorsTensor* SafetensorsFile::find(std::string_view name) const {
  const auto at = std::lower_bound(
      by_name_.begin(), by_name_.end(), name,
      [this](std::size_t i, std::string_view wanted) { return tensors_[i].name < wanted; });
  return at != by_name_.end() && tensors_[*at].name == name ? &tensors_[*at] : nullptr;
}

const SafetensorsTensor& SafetensorsFile::at(std::string_view name) const {
  if (const auto* tensor = find(name)) return *tensor;
  throw WeightsError(
      path_, "there is no tensor '{}' among its {}; check that the file belongs to this model",
      name, tensors_.size());
}

std::span<const std::byte> SafetensorsFile::bytes(std::string_view name, DType type) const {
  const SafetensorsTensor& tensor = at(name);
  if (tensor.dtype != type) refuse(tensor, type);
  return tensor.bytes;
}

void SafetensorsFile::refuse(const SafetensorsTensor& tensor, DType wanted) const {
  throw WeightsError(path_, "tensor '{}' is {}, not {}{}; convert the file", tensor.name,
                     tensor.dtype_name, detail::safetensors_type(wanted).name,
                     (tensor.dtype ? "" : " (a type that lockstep does not support)"));
}

SafetensorsFile::SafetensorsFile(std::string path, detail::SafetensorsHeader header,
                                 std::vector<std::byte> body)
    : path_(std::move(path)), body_(std::move(body)), metadata_(std::move(header.metadata)) {
  tensors_.reserve(header.tensors.size());
  for (auto& record : header.tensors)
    tensors_.push_back({std::move(record.name), std::string(record.type->name), record.type->dtype,
                        std::move(record.shape),
                        std::span<const std::byte>(body_).subspan(
                            static_cast<std::size_t>(record.begin),
                            static_cast<std::size_t>(record.end - record.begin))});
  by_name_.resize(tensors_.size());
  for (std::size_t i = 0; i < by_name_.size(); ++i) by_name_[i] = i;
  std::sort(by_name_.begin(), by_name_.end(),
            [this](std::size_t a, std::size_t b) { return tensors_[a].name < tensors_[b].name; });
}

}  // namespace lockstep

namespace lockstep::detail {

std::string safetensors_header(const std::string& path,
                               const std::vector<SafetensorsEntry>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  const auto refuse = [&path](const std::string& fact) { throw UsageError("{}: {}", path, fact); };
  std::string text = "{";
  std::size_t metadata_bytes = 0;
  for (const auto& [key, value] : metadata) {
    metadata_bytes += key.size() + value.size();
    if (!is_utf8(key) || !is_utf8(value))
      refuse(fmt::format("metadata {} is not UTF-8; encode it", show_name(key)));
    text += text.size() == 1 ? "\"__metadata__\":{" : ",";
    text += json_string(key) + ":" + json_string(value);
  }
  if (metadata_bytes > SafetensorsLimits{}.metadata)
    refuse("the metadata has more than 1 MiB; store it in a tensor or in another file");
  if (!metadata.empty()) text += "}";

  std::unordered_set<std::string> names;
  std::uint64_t offset = 0;
  for (const auto& tensor : tensors) {
    const auto& type = safetensors_type(tensor.dtype);
    const std::string name = "tensor " + show_name(tensor.name);
    if (tensor.name == "__metadata__" || tensor.name.size() > SafetensorsLimits{}.name ||
        tensor.name.find('\0') != std::string::npos || !is_utf8(tensor.name))
      refuse(fmt::format(
          "{} cannot have this name; use UTF-8 without NUL, at most 4 KiB, not __metadata__",
          name));
    if (!names.insert(tensor.name).second)
      refuse(fmt::format("{} occurs twice; give each tensor its own name", name));
    const auto bits = bits_of(tensor.shape, type.bits);
    if (!bits || *bits / 8 != tensor.bytes.size())
      refuse(fmt::format("{} has {} bytes, which does not match its shape and type; check both",
                         name, tensor.bytes.size()));
    // One += per part: for "," + std::string, g++ 12 warns about an overlap that cannot occur.
    if (text.size() > 1) text += ",";
    text += json_string(tensor.name);
    text += ":{\"dtype\":\"";
    text += type.name;
    text += "\",\"shape\":[";
    for (std::size_t axis = 0; axis < tensor.shape.size(); ++axis) {
      if (axis > 0) text += ",";
      text += std::to_string(tensor.shape[axis]);
    }
    text += fmt::format("],\"data_offsets\":[{},{}]}}", offset, offset + tensor.bytes.size());
    offset += tensor.bytes.size();
  }
  if (tensors.size() > SafetensorsLimits{}.tensors)
    refuse("more than 2^20 tensors; use several files");
  text += "}";
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > SafetensorsFile::import_limit)
    refuse("the header has more than 100 MB, the limit of readers; use several files");
  return text;
}

}  // namespace lockstep::detail

namespace lockstep {

void write_safetensors(const std::string& path, std::vector<SafetensorsEntry> tensors,
                       const std::map<std::string, std::string>& metadata) {
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
