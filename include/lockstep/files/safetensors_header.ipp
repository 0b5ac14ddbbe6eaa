#pragma once

#include "lockstep/files/safetensors_header.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "lockstep/core/format_text.hpp"
#include "lockstep/core/quote.hpp"
#include "lockstep/core/utf8.hpp"
#include "lockstep/files/json_document.hpp"

namespace lockstep::detail {

inline constexpr std::array<SafetensorsType, 22> safetensors_types{{
    {"BOOL", 8, DType::boolean},
    {"F4", 4},
    {"F6_E2M3", 6},
    {"F6_E3M2", 6},
    {"U8", 8, DType::uint8},
    {"I8", 8, DType::int8},
    {"F8_E5M2", 8},
    {"F8_E4M3", 8},
    {"F8_E8M0", 8},
    {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8},
    {"I16", 16, DType::int16},
    {"U16", 16, DType::uint16},
    {"F16", 16, DType::float16},
    {"BF16", 16, DType::bfloat16},
    {"I32", 32, DType::int32},
    {"U32", 32, DType::uint32},
    {"F32", 32, DType::float32},
    {"C64", 64},
    {"F64", 64, DType::float64},
    {"I64", 64, DType::int64},
    {"U64", 64, DType::uint64},
}};

const SafetensorsType* safetensors_type(std::string_view name) {
  for (const auto& type : safetensors_types)
    if (type.name == name) return &type;
  return nullptr;
}

const SafetensorsType& safetensors_type(DType dtype) {
  return *std::find_if(safetensors_types.begin(), safetensors_types.end(),
                       [dtype](const auto& type) { return type.dtype == dtype; });
}

std::optional<std::uint64_t> bits_of(const std::vector<std::uint64_t>& shape, unsigned bits) {
  std::uint64_t product = 1;
  const auto multiply = [&product](std::uint64_t factor) {
    if (factor != 0 && product > std::numeric_limits<std::uint64_t>::max() / factor) return false;
    product *= factor;
    return true;
  };
  for (const std::uint64_t extent : shape)
    if (!multiply(extent)) return std::nullopt;
  return multiply(bits) ? std::optional(product) : std::nullopt;
}

/// Reads the members of a parsed header; throws at the first fault. Unknown fields of a tensor are
/// skipped, as in the reference, but their keys and numbers are checked as well.
class SafetensorsReader {
 public:
  SafetensorsReader(const std::string& path, const SafetensorsLimits& limits)
      : path_(path), limits_(limits) {}

  [[noreturn]] void fail(const std::string& fact) const {
    throw WeightsError(
        path_, "{}; the file is damaged or is not a safetensors file; write it again", fact);
  }

  SafetensorsHeader header(const JsonValue& root) {
    SafetensorsHeader result;
    if (root.member_count() > limits_.tensors + 1)  // the metadata is a member, too
      fail_here(format_text("there are more than {} tensors", limits_.tensors));
    for (const auto& [key, value] : members(root)) {
      check_name(key);
      const bool is_metadata = key == "__metadata__";
      if (!is_metadata && result.tensors.size() == limits_.tensors)
        fail_here(format_text("there are more than {} tensors", limits_.tensors));
      if (!value.is_object())
        refuse(value, format_text("{} is expected, at key {}",
                                  is_metadata ? "an object of strings" : "a tensor description",
                                  shown_name(key)));
      at_ = key;
      if (is_metadata)
        result.metadata = metadata(value);
      else
        result.tensors.push_back(tensor(value));
      at_.reset();
    }
    return result;
  }

 private:
  [[noreturn]] void fail_here(const std::string& fact) const {
    fail(!at_                     ? "in its header: " + fact
         : *at_ == "__metadata__" ? "in __metadata__: " + fact
                                  : format_text("tensor {}: {}", shown_name(*at_), fact));
  }
  [[noreturn]] void refuse(const JsonValue& found, const std::string& wanted) const {
    fail_here(format_text("{} where {}", found.is_list() ? "an array" : json_kind(found), wanted));
  }

  std::vector<JsonMember> members(const JsonValue& object) const {
    std::vector<JsonMember> result = object.members();
    if (const auto key = repeated_key(result))
      fail_here(format_text("duplicate key {}", shown_name(*key)));
    return result;
  }
  void check_name(std::string_view name) const {
    if (name.size() > limits_.name)
      fail_here(format_text("the name {} is longer than {} bytes", shown_name(name), limits_.name));
    if (name.find('\0') != std::string_view::npos)
      fail_here(format_text("the name {} contains a NUL", shown_name(name)));
  }

  std::map<std::string, std::string> metadata(const JsonValue& object) const {
    std::map<std::string, std::string> result;
    std::size_t bytes = 0;
    for (const auto& [key, value] : members(object)) {
      if (!value.is_text())
        refuse(value, format_text("a string is expected, at key {}", shown_name(key)));
      bytes += key.size() + value.text().size();
      if (bytes > limits_.metadata) fail_here(format_text("more than {} bytes", limits_.metadata));
      result.emplace(key, value.text());
    }
    return result;
  }
  SafetensorsRecord tensor(const JsonValue& object) const {
    SafetensorsRecord result{std::string(*at_), nullptr, {}, 0, 0};
    bool has_shape = false, has_offsets = false;
    for (const auto& [key, value] : members(object)) {
      if (key == "dtype") {
        if (!value.is_text()) refuse(value, "its dtype is expected");
        result.type = safetensors_type(value.text());
        if (!result.type)
          fail_here(format_text("the dtype {} is unknown", shown_name(value.text())));
      } else if (key == "shape") {
        result.shape = counts(value, "its shape is expected", "an extent of its shape is expected");
        has_shape = true;
      } else if (key == "data_offsets") {
        const auto offsets =
            counts(value, "its data_offsets is expected", "one of its data_offsets is expected");
        if (offsets.size() != 2)
          fail_here(format_text("data_offsets has {} numbers, not two", offsets.size()));
        result.begin = offsets[0];
        result.end = offsets[1];
        has_offsets = true;
      } else {
        check_unknown(value);
      }
    }
    if (!result.type) fail_here("it has no dtype");
    if (!has_shape) fail_here("it has no shape");
    if (!has_offsets) fail_here("it has no data_offsets");
    return result;
  }
  std::vector<std::uint64_t> counts(const JsonValue& list, const char* wanted,
                                    const char* element) const {
    if (!list.is_list()) refuse(list, wanted);
    std::vector<std::uint64_t> result;
    for (const JsonValue& value : list.values()) {
      if (!value.is_number()) refuse(value, element);
      result.push_back(count(value));
    }
    return result;
  }
  std::uint64_t count(const JsonValue& number) const {
    if (number.kind() == JsonKind::negative)
      fail_here("a negative number where a count is expected");
    if (number.kind() == JsonKind::fraction)
      fail_here("a number with a fraction or an exponent, or of 2^64 or more");
    return number.natural();
  }
  /// Recurses at most as deep as the limits allow.
  void check_unknown(const JsonValue& value) const {
    if (value.is_number()) count(value);
    if (value.is_list())
      for (const JsonValue& element : value.values()) check_unknown(element);
    if (value.is_object())
      for (const auto& member : members(value)) check_unknown(member.value);
  }

  const std::string& path_;
  SafetensorsLimits limits_;
  std::optional<std::string_view> at_;  // the member of the header that is read
};

SafetensorsHeader parse_safetensors_header(const std::string& path, std::string_view text,
                                           std::uint64_t body, const SafetensorsLimits& limits) {
  SafetensorsReader reader(path, limits);
  if (!is_utf8(text)) reader.fail("its header is not UTF-8");
  if (text.empty() || text.front() != '{') reader.fail("its header does not begin with '{'");
  SafetensorsHeader header;
  try {
    const JsonDocument document(text, "its header",
                                {.bytes = text.size(),
                                 .depth = limits.depth,
                                 .values = limits.values_per_tensor * limits.tensors});
    header = reader.header(document.root());
  } catch (const JsonError& error) {
    throw WeightsError(path, "{}, or write the file again", error.what());
  }

  auto& tensors = header.tensors;
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t covered = 0;
  for (const auto& tensor : tensors) {
    const auto tensor_is = [&](const std::string& fact) {
      reader.fail(format_text("tensor {}: {}", shown_name(tensor.name), fact));
    };
    const auto offsets_are = [&](const std::string& fact) {
      tensor_is(format_text("its data_offsets [{}, {}] {}", tensor.begin, tensor.end, fact));
    };
    if (tensor.begin != covered)
      offsets_are(format_text("leave a gap or overlap: the tensors before it end at {}", covered));
    if (tensor.end < tensor.begin) offsets_are("end before they begin");
    covered = tensor.end;
    const auto bits = bits_of(tensor.shape, tensor.type->bits);
    if (!bits) tensor_is("its shape has 2^64 bits or more");
    if (*bits % 8 != 0) tensor_is("its elements do not fill whole bytes");
    if (*bits / 8 != tensor.end - tensor.begin)
      offsets_are(format_text("hold {} bytes, but its shape and dtype need {}",
                              tensor.end - tensor.begin, *bits / 8));
  }
  if (covered != body)
    reader.fail(
        format_text("its tensors cover {} bytes, but the file has {} after the header {}", covered,
                    body, covered > body ? "(it is truncated)" : "(bytes follow the last tensor)"));
  return header;
}

}  // namespace lockstep::detail
