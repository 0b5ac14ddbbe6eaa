#pragma once

#include "lockstep/files/safetensors_header.hpp"

// X11 defines Bool, the name of a member function of RapidJSON's handlers.
#pragma push_macro("Bool")
#undef Bool

#include <rapidjson/error/error.h>
#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/format_text.hpp"

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

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
    const unsigned first = byte(i);
    const std::size_t length = first < 0x80                     ? 1
                               : first >= 0xC2 && first <= 0xDF ? 2
                               : first >= 0xE0 && first <= 0xEF ? 3
                               : first >= 0xF0 && first <= 0xF4 ? 4
                                                                : 0;
    if (length == 0 || length > text.size() - i) return false;
    if (length > 1) {
      const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
      const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
      if (byte(i + 1) < low || byte(i + 1) > high) return false;
      for (std::size_t k = 2; k < length; ++k)
        if (byte(i + k) < 0x80 || byte(i + k) > 0xBF) return false;
    }
    i += length;
  }
  return true;
}

std::string show_name(std::string_view name) {
  std::size_t end = std::min(name.size(), std::size_t{80});
  while (end < name.size() && end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0) == 0x80)
    --end;
  const std::string quoted = json_string(name.substr(0, end));
  std::string text = "'";
  for (std::size_t i = 1; i + 1 < quoted.size(); ++i) {
    const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(quoted[at]); };
    if (byte(i) == 0x7F)
      text += "\\u007f";
    else if (byte(i) == 0xC2 && byte(i + 1) < 0xA0)
      text += format_text("\\u{:04x}", byte(++i));
    else
      text += quoted[i];
  }
  return text + (end < name.size() ? "'..." : "'");
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

/// Handler of RapidJSON's SAX events; fills a header and throws at the first fault. The state
/// machine of place_, where `ignore` skips the value of an unknown field of a tensor:
/// \code
///   nothing --{--> root --"__metadata__": {--> metadata     strings only
///                   |
///                   +-----"name": {----------> tensor --"shape": [---------> shape     counts
///                                                 |-----"data_offsets": [--> offsets   two counts
///                                                 |-----"dtype": string
///                                                 +-----other field--------> ignore
/// \endcode
/// Each } or ] returns to the state on the left.
class SafetensorsSax : public rapidjson::BaseReaderHandler<rapidjson::UTF8<>, SafetensorsSax> {
 public:
  SafetensorsSax(const std::string& path, SafetensorsHeader& header,
                 const SafetensorsLimits& limits)
      : path_(path), header_(header), limits_(limits) {}

  [[noreturn]] void fail(const std::string& fact) const {
    throw WeightsError(
        path_, "{}; the file is damaged or is not a safetensors file; write it again", fact);
  }

  bool Null() { return scalar("null"); }
  bool Bool(bool) { return scalar("a boolean"); }
  /// Receives the digits as written in the file, so that -0, 1.0 and 2^64 can be rejected.
  bool RawNumber(const char* digits, unsigned length, bool) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(digits, digits + length, number);
    if (error == std::errc{} && end == digits + length) return count(number);
    if (*digits == '-' &&
        std::string_view(digits, length).find_first_of(".eE") == std::string::npos)
      fail(format_text("{}a negative number where a count is expected", where()));
    fail(format_text("{}a number with a fraction or an exponent, or of 2^64 or more", where()));
  }
  bool String(const char* text, unsigned length, bool) {
    const std::string_view value(text, length);
    check_text(value);
    if (ignored_ > 0) return true;
    if (place_ == Place::metadata) {
      count_metadata(length);
      header_.metadata[key_] = value;
    } else if (place_ == Place::tensor && key_ == "dtype") {
      tensor().type = safetensors_type(value);
      if (!tensor().type) fail(format_text("{}the dtype {} is unknown", where(), show_name(value)));
    } else {
      return scalar("a string");
    }
    return true;
  }

  bool StartObject() {
    deeper();
    keys_.emplace_back();
    if (ignored_ > 0) {
      ++ignored_;
    } else if (place_ == Place::nothing) {
      place_ = Place::root;
    } else if (place_ == Place::root && key_ == "__metadata__") {
      place_ = Place::metadata;
    } else if (place_ == Place::root) {
      place_ = Place::tensor;
      has_shape_ = has_offsets_ = false;
      header_.tensors.push_back({key_, nullptr, {}, 0, 0});
    } else {
      ignore("an object");
    }
    return true;
  }
  bool Key(const char* text, unsigned length, bool) {
    std::string name(text, length);
    check_text(name);
    if (!keys_.back().insert(name).second)
      fail(format_text("{}duplicate key {}", where(), show_name(name)));
    if (place_ == Place::root) check_name(name);
    if (place_ == Place::metadata) count_metadata(name.size());
    key_ = std::move(name);
    return true;
  }
  bool EndObject(unsigned) {
    keys_.pop_back();
    if (leave_ignored()) return true;
    if (place_ == Place::tensor) {
      if (!tensor().type) fail(format_text("{}it has no dtype", where()));
      if (!has_shape_) fail(format_text("{}it has no shape", where()));
      if (!has_offsets_) fail(format_text("{}it has no data_offsets", where()));
    }
    place_ = place_ == Place::root ? Place::nothing : Place::root;
    return true;
  }
  bool StartArray() {
    deeper();
    if (ignored_ > 0) {
      ++ignored_;
    } else if (place_ == Place::tensor && key_ == "shape") {
      place_ = Place::shape;
      has_shape_ = true;
    } else if (place_ == Place::tensor && key_ == "data_offsets") {
      place_ = Place::offsets;
      has_offsets_ = true;
      offsets_.clear();
    } else {
      ignore("an array");
    }
    return true;
  }
  bool EndArray(unsigned) {
    if (leave_ignored()) return true;
    if (place_ == Place::offsets) {
      if (offsets_.size() != 2)
        fail(format_text("{}data_offsets has {} numbers, not two", where(), offsets_.size()));
      tensor().begin = offsets_[0];
      tensor().end = offsets_[1];
    }
    place_ = Place::tensor;
    return true;
  }

 private:
  enum class Place { nothing, root, metadata, tensor, shape, offsets };

  bool count(std::uint64_t number) {
    if (ignored_ > 0) return true;
    if (place_ == Place::shape)
      tensor().shape.push_back(number);
    else if (place_ == Place::offsets)
      offsets_.push_back(number);
    else
      return scalar("a number");
    return true;
  }
  SafetensorsRecord& tensor() { return header_.tensors.back(); }
  std::string where() const {
    if (place_ == Place::metadata) return "in __metadata__: ";
    if (place_ == Place::root || place_ == Place::nothing) return "in its header: ";
    return "tensor " + show_name(header_.tensors.back().name) + ": ";
  }
  void deeper() {
    if (++depth_ > limits_.depth)
      fail(format_text("{}nested deeper than {} levels", where(), limits_.depth));
  }
  /// Skips the object or array in an unknown field, as the reference does.
  void ignore(const char* what) {
    expect_unknown_field(what);
    ++ignored_;
  }
  bool leave_ignored() {
    --depth_;
    if (ignored_ == 0) return false;
    --ignored_;
    return true;
  }
  bool scalar(const char* what) {
    if (ignored_ == 0) expect_unknown_field(what);
    return true;
  }
  void expect_unknown_field(const char* what) {
    if (place_ == Place::tensor && key_ != "dtype" && key_ != "shape" && key_ != "data_offsets")
      return;
    const std::string found = format_text("{}{} where ", where(), what);
    switch (place_) {
      case Place::nothing:
      case Place::root:
        fail(format_text("{}a tensor description is expected, at key {}", found, show_name(key_)));
      case Place::metadata:
        fail(format_text("{}a string is expected, at key {}", found, show_name(key_)));
      case Place::tensor:
        fail(format_text("{}its {} is expected", found, key_));
      case Place::shape:
        fail(format_text("{}an extent of its shape is expected", found));
      case Place::offsets:
        fail(format_text("{}one of its data_offsets is expected", found));
    }
  }
  /// Rejects unpaired surrogates: RapidJSON decodes an escaped low surrogate on its own to invalid
  /// UTF-8.
  void check_text(std::string_view value) const {
    if (!is_utf8(value)) fail("its header is not valid JSON: a string has an unpaired surrogate");
  }
  void check_name(const std::string& name) {
    if (name.size() > limits_.name)
      fail(format_text("in its header: the name {} is longer than {} bytes", show_name(name),
                       limits_.name));
    if (name.find('\0') != std::string::npos)
      fail(format_text("in its header: the name {} contains a NUL", show_name(name)));
    if (name != "__metadata__" && header_.tensors.size() == limits_.tensors)
      fail(format_text("in its header: there are more than {} tensors", limits_.tensors));
  }
  void count_metadata(std::size_t bytes) {
    metadata_bytes_ += bytes;
    if (metadata_bytes_ > limits_.metadata)
      fail(format_text("in __metadata__: more than {} bytes", limits_.metadata));
  }

  const std::string& path_;
  SafetensorsHeader& header_;
  SafetensorsLimits limits_;
  Place place_ = Place::nothing;
  std::size_t depth_ = 0, ignored_ = 0, metadata_bytes_ = 0;
  bool has_shape_ = false, has_offsets_ = false;
  std::string key_;
  std::vector<std::uint64_t> offsets_;
  std::vector<std::unordered_set<std::string>> keys_;
};

SafetensorsHeader parse_safetensors_header(const std::string& path, std::string_view text,
                                           std::uint64_t body, const SafetensorsLimits& limits) {
  SafetensorsHeader header;
  SafetensorsSax sax(path, header, limits);
  if (!is_utf8(text)) sax.fail("its header is not UTF-8");
  if (text.empty() || text.front() != '{') sax.fail("its header does not begin with '{'");
  // RapidJSON treats a NUL as the end of the text and would not parse the rest.
  if (text.find('\0') != std::string_view::npos) sax.fail("its header contains a NUL byte");
  rapidjson::MemoryStream stream(text.data(), text.size());
  rapidjson::Reader reader;
  const auto result = reader.Parse<rapidjson::kParseNumbersAsStringsFlag>(stream, sax);
  if (result.IsError())
    sax.fail(
        format_text("its header is not valid JSON at byte {} of the header", result.Offset() + 1));

  auto& tensors = header.tensors;
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t covered = 0;
  for (const auto& tensor : tensors) {
    const auto tensor_is = [&](const std::string& fact) {
      sax.fail(format_text("tensor {}: {}", show_name(tensor.name), fact));
    };
    const std::string offsets = format_text("its data_offsets [{}, {}]", tensor.begin, tensor.end);
    if (tensor.begin != covered)
      tensor_is(format_text("{} leave a gap or overlap: the tensors before it end at {}", offsets,
                            covered));
    if (tensor.end < tensor.begin) tensor_is(offsets + " end before they begin");
    covered = tensor.end;
    const auto bits = bits_of(tensor.shape, tensor.type->bits);
    if (!bits) tensor_is("its shape has 2^64 bits or more");
    if (*bits % 8 != 0) tensor_is("its elements do not fill whole bytes");
    if (*bits / 8 != tensor.end - tensor.begin)
      tensor_is(format_text("{} hold {} bytes, but its shape and dtype need {}", offsets,
                            tensor.end - tensor.begin, *bits / 8));
  }
  if (covered != body)
    sax.fail(format_text("its tensors cover {} bytes, but the file has {} after the header {}",
                         covered, body,
                         covered > body ? "(it is truncated)" : "(bytes follow the last tensor)"));
  return header;
}

}  // namespace lockstep::detail

#pragma pop_macro("Bool")
