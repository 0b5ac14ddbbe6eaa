#pragma once

#include "lockstep/files/safetensors.hpp"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/quote.hpp"
#include "lockstep/core/utf8.hpp"
#include "lockstep/files/atomic_file.hpp"
#include "lockstep/files/input_file.hpp"
#include "lockstep/files/safetensors_header.hpp"

namespace lockstep::detail {

/// Name and remedy of another known format that begins with `first`; empty if unknown.
[[gnu::cold]] inline std::string_view other_format(const std::vector<std::byte>& first) {
  const std::string_view begin(reinterpret_cast<const char*>(first.data()), first.size());
  if (begin.starts_with("\x89HDF\r\n"))
    return "it is an HDF5 file, as Keras writes for .h5; write safetensors with "
           "tools/exchange/keras_model.py save";
  if (begin.starts_with("PK\x03\x04"))
    return "it is a zip archive, such as a .keras file, a .pt file of PyTorch or an .npz file; "
           "write safetensors with tools/exchange/keras_model.py save, or with torch_model.save of "
           "tools/exchange/";
  if (begin.starts_with("\x80\x02") || begin.starts_with("\x80\x04"))
    return "it is a pickle of Python, such as an old .pt file of PyTorch; write safetensors with "
           "torch_model.save of tools/exchange/";
  if (begin.starts_with("\x93NUMPY"))
    return "it is a file of NumPy; write safetensors with the package safetensors.numpy";
  return {};
}

/// The length of the header of a file of `size` bytes that begins with `first`.
/// \throws WeightsError if there is no room for it, or if it exceeds `limit`.
[[gnu::cold]] inline std::uint64_t header_length(const std::string& path,
                                                 const std::vector<std::byte>& first,
                                                 std::uint64_t size, std::uint64_t limit) {
  const auto refuse = [&path](const std::string& fact) {
    throw WeightsError(path, "{}; the file is damaged or is not a safetensors file", fact);
  };
  std::uint64_t length = 0;
  if (size < sizeof length)
    refuse(format_text("it has {} bytes, fewer than the 8 of the header length", size));
  std::memcpy(&length, first.data(), sizeof length);
  // Only of a length that is wrong: 640 begins as a pickle does.
  if (length > std::min(limit, size - sizeof length))
    if (const std::string_view other = other_format(first); !other.empty())
      throw WeightsError(path, "{}", other);
  if (length > limit)
    refuse(format_text("its header length is {} bytes, more than the limit of {}", length, limit));
  const std::uint64_t rest = size - sizeof length;
  if (length > rest)
    refuse(format_text(
        "its header length is {} bytes, but the file has only {} more (it is truncated)", length,
        rest));
  return length;
}

SafetensorsHeader read_safetensors_head(const std::string& path,
                                        const std::vector<std::byte>& begin, std::uint64_t size,
                                        std::uint64_t limit, std::size_t& body) {
  constexpr std::size_t prefix = sizeof(std::uint64_t);
  const auto length = static_cast<std::size_t>(header_length(path, begin, size, limit));
  body = prefix + length;
  return parse_safetensors_header(
      path, {reinterpret_cast<const char*>(begin.data()) + prefix, length}, size - body);
}

}  // namespace lockstep::detail

namespace lockstep {

SafetensorsFile SafetensorsFile::read(const std::string& path, std::uint64_t header_limit) {
  detail::InputFile input(path);
  constexpr std::size_t prefix = sizeof(std::uint64_t);
  const std::uint64_t length = detail::header_length(
      path, input.next(static_cast<std::size_t>(std::min(input.size(), std::uint64_t{prefix}))),
      input.size(), header_limit);
  const auto text = input.next(static_cast<std::size_t>(length));
  const std::uint64_t rest = input.size() - prefix - length;
  auto header = detail::parse_safetensors_header(
      path, {reinterpret_cast<const char*>(text.data()), text.size()}, rest);
  return SafetensorsFile(path, std::move(header), input.next(static_cast<std::size_t>(rest)));
}

SafetensorsFile SafetensorsFile::parse(const std::string& path, std::vector<std::byte> content,
                                       std::uint64_t header_limit) {
  std::size_t body = 0;
  auto header = detail::read_safetensors_head(path, content, content.size(), header_limit, body);
  return SafetensorsFile(path, std::move(header), std::move(content), body);
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
      path_, "there is no tensor {} among its {}; check that the file belongs to this model",
      detail::shown_name(name), tensors_.size());
}

std::span<const std::byte> SafetensorsFile::bytes(std::string_view name, DType type) const {
  const SafetensorsTensor& tensor = at(name);
  if (tensor.dtype != type) refuse(tensor, type);
  return tensor.bytes;
}

void SafetensorsFile::refuse(const SafetensorsTensor& tensor, DType wanted) const {
  throw WeightsError(path_, "tensor {} is {}, not {}{}; convert the file",
                     detail::shown_name(tensor.name), tensor.dtype_name,
                     detail::safetensors_type(wanted).name,
                     (tensor.dtype ? "" : " (a type that lockstep does not support)"));
}

SafetensorsFile::SafetensorsFile(std::string path, detail::SafetensorsHeader header,
                                 std::vector<std::byte> body, std::size_t first)
    : path_(std::move(path)), body_(std::move(body)), metadata_(std::move(header.metadata)) {
  tensors_.reserve(header.tensors.size());
  for (auto& record : header.tensors)
    tensors_.push_back({std::move(record.name), std::string(record.type->name), record.type->dtype,
                        std::move(record.shape),
                        std::span<const std::byte>(body_).subspan(
                            first + static_cast<std::size_t>(record.begin),
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
      refuse(format_text("metadata {} is not UTF-8; encode it", shown_name(key)));
    text += text.size() == 1 ? "\"__metadata__\":{" : ",";
    text += json_string(key) + ":" + json_string(value);
  }
  if (metadata_bytes > SafetensorsLimits{}.metadata)
    refuse("the metadata has more than 1 MiB; store it in a tensor or in another file");
  if (!metadata.empty()) text += "}";

  std::unordered_set<std::string> names;
  std::uint64_t offset = 0;
  std::size_t values = 3 + 2 * metadata.size();  // as JsonLimits counts them
  for (const auto& tensor : tensors) {
    const auto& type = safetensors_type(tensor.dtype);
    const std::string name = "tensor " + shown_name(tensor.name);
    if (tensor.name == "__metadata__" || tensor.name.size() > SafetensorsLimits{}.name ||
        tensor.name.find('\0') != std::string::npos || !is_utf8(tensor.name))
      refuse(format_text(
          "{} cannot have this name; use UTF-8 without NUL, at most 4 KiB, not __metadata__",
          name));
    if (!names.insert(tensor.name).second)
      refuse(format_text("{} occurs twice; give each tensor its own name", name));
    const auto bits = bits_of(tensor.shape, type.bits);
    if (!bits || *bits / 8 != tensor.bytes.size())
      refuse(format_text("{} has {} bytes, which does not match its shape and type; check both",
                         name, tensor.bytes.size()));
    values += 10 + tensor.shape.size();
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
    text += format_text("],\"data_offsets\":[{},{}]}}", offset, offset + tensor.bytes.size());
    offset += tensor.bytes.size();
  }
  if (tensors.size() > SafetensorsLimits{}.tensors)
    refuse("more than 2^20 tensors; use several files");
  if (values > SafetensorsLimits{}.values_per_tensor * SafetensorsLimits{}.tensors)
    refuse("the shapes have too many axes for readers; use several files");
  text += "}";
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > SafetensorsFile::import_limit)
    refuse("the header has more than 100 MB, the limit of readers; use several files");
  return text;
}

std::string safetensors_head(const std::string& path, std::vector<SafetensorsEntry>& tensors,
                             const std::map<std::string, std::string>& metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    const auto *type_a = &safetensors_type(a.dtype), *type_b = &safetensors_type(b.dtype);
    return type_a != type_b ? type_a > type_b : a.name < b.name;
  });
  const std::string header = safetensors_header(path, tensors, metadata);
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header;
}

}  // namespace lockstep::detail

namespace lockstep {

void write_safetensors(const std::string& path, std::vector<SafetensorsEntry> tensors,
                       const std::map<std::string, std::string>& metadata) {
  const std::string head = detail::safetensors_head(path, tensors, metadata);
  AtomicFile file(path);
  file.write(head);
  for (const auto& tensor : tensors) file.write(tensor.bytes);
  file.commit();
}

}  // namespace lockstep
