#pragma once

#include "lockstep/files/json_document.hpp"

// X11 defines Bool, the name of a member function of RapidJSON's handlers.
#pragma push_macro("Bool")
#undef Bool

#include <rapidjson/error/en.h>
#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <system_error>
#include <utility>

#include "lockstep/core/format_text.hpp"
#include "lockstep/core/quote.hpp"
#include "lockstep/core/utf8.hpp"

namespace lockstep::detail {

JsonValue JsonDocument::root() const { return {*this, 0}; }

std::vector<JsonValue> JsonValue::values() const {
  std::vector<JsonValue> result;
  for (std::uint32_t i = first(); i != JsonDocument::none; i = document_->nodes_[i].next)
    result.push_back({*document_, i});
  return result;
}

std::size_t JsonValue::member_count() const {
  std::size_t count = 0;
  for (std::uint32_t i = first(); i != JsonDocument::none; ++count)
    i = document_->nodes_[document_->nodes_[i].next].next;
  return count;
}

std::vector<JsonMember> JsonValue::members() const {
  std::vector<JsonMember> result;
  result.reserve(member_count());
  for (std::uint32_t i = first(); i != JsonDocument::none;) {
    const std::uint32_t value = document_->nodes_[i].next;
    result.push_back({JsonValue(*document_, i).text(), {*document_, value}});
    i = document_->nodes_[value].next;
  }
  return result;
}

std::string_view json_kind(const JsonValue& value) {
  switch (value.kind()) {
    case JsonKind::null:
      return "null";
    case JsonKind::boolean:
      return "a boolean";
    case JsonKind::text:
      return "a string";
    case JsonKind::list:
      return "a list";
    case JsonKind::object:
      return "an object";
    default:
      return "a number";
  }
}

std::optional<std::string_view> repeated_key(const std::vector<JsonMember>& members) {
  std::vector<std::string_view> keys(members.size());
  std::transform(members.begin(), members.end(), keys.begin(), [](const auto& m) { return m.key; });
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  return twice == keys.end() ? std::nullopt : std::optional(*twice);
}

std::optional<JsonValue> json_find(const JsonValue& object, std::string_view key) {
  if (!object.is_object())
    throw JsonError("{} is where an object with {} belongs", json_kind(object), quote(key));
  for (const JsonMember& member : object.members())
    if (member.key == key) return member.value;
  return std::nullopt;
}

JsonValue json_member(const JsonValue& object, std::string_view key) {
  if (const auto found = json_find(object, key)) return *found;
  throw JsonError("the member {} is missing", quote(key));
}

/// A member that must be `wanted`, such as "a string".
[[gnu::cold]] inline JsonValue json_member_of(const JsonValue& object, std::string_view key,
                                              bool (*is_wanted)(const JsonValue&),
                                              std::string_view wanted) {
  const JsonValue value = json_member(object, key);
  if (!is_wanted(value))
    throw JsonError("the member {} is {} instead of {}", quote(key), json_kind(value), wanted);
  return value;
}

std::string_view json_text(const JsonValue& object, std::string_view key) {
  return json_member_of(object, key, [](const auto& v) { return v.is_text(); }, "a string").text();
}
std::uint64_t json_natural(const JsonValue& object, std::string_view key) {
  const auto is_natural = [](const JsonValue& v) { return v.kind() == JsonKind::natural; };
  return json_member_of(object, key, is_natural, "a natural number").natural();
}
bool json_boolean(const JsonValue& object, std::string_view key) {
  const auto is_boolean = [](const JsonValue& v) { return v.kind() == JsonKind::boolean; };
  return json_member_of(object, key, is_boolean, "a boolean").boolean();
}
std::vector<JsonValue> json_list(const JsonValue& object, std::string_view key) {
  return json_member_of(object, key, [](const auto& v) { return v.is_list(); }, "a list").values();
}
double json_double(const JsonValue& value) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (value.is_number()) return value.number();
  if (value.is_text()) {
    if (value.text() == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (value.text() == "inf") return infinity;
    if (value.text() == "-inf") return -infinity;
  }
  throw JsonError("{} is where a number belongs", json_kind(value));
}

/// The common mistake that made the JSON invalid; empty if none fits. `at` is where the parser
/// stopped. The checks are ordered: a text can show several signs, and the first one is the
/// likeliest cause.
inline std::string_view json_mistake(std::string_view text, std::size_t at) {
  const auto first = text.find_first_not_of(json_blanks);
  const std::string_view rest = text.substr(at);
  const auto has = [&](std::string_view part) { return text.find(part) != std::string_view::npos; };
  if (text[first] == '/' || text.starts_with("./") || text.ends_with(".json"))
    return "it looks like a file name; pass the JSON itself, or read the file "
           "with lockstep::read_cluster_file";
  if (has("\xE2\x80\x9C") || has("\xE2\x80\x9D"))
    return "it has typographic quotes; use plain double quotes";
  if (text[first] == '\'')
    return "it begins with a single quote, which the shell should have removed; remove the "
           "outer quotes";
  if (rest.starts_with('\''))
    return "it has single quotes, as in a printed Python dict; use double quotes, in Python with "
           "json.dumps";
  if (rest.starts_with("None") || rest.starts_with("True") || rest.starts_with("False"))
    return "it has a Python literal; write null, true or false, in Python with json.dumps";
  if (rest.starts_with("//") || rest.starts_with("/*") || rest.starts_with('#'))
    return "it has a comment, which JSON does not allow; remove it";
  if (rest.starts_with("\\\"")) return "its quotes are escaped; remove the backslashes";
  if (rest.starts_with('}') || rest.starts_with(']')) {
    const auto before = text.find_last_not_of(json_blanks, at == 0 ? 0 : at - 1);
    if (before != std::string_view::npos && text[before] == ',')
      return "it has a comma before a closing bracket; remove the comma";
  }
  if (rest.empty() || at >= text.find_last_not_of(json_blanks) + 1)
    return "it ends too early; a closing bracket or quote is missing";
  if (!has("\""))
    return "it has no double quotes, perhaps because the shell removed them; put single quotes "
           "around the whole value";
  return "";
}

/// Builds the nodes from the events of RapidJSON's reader.
class JsonHandler : public rapidjson::BaseReaderHandler<rapidjson::UTF8<>, JsonHandler> {
 public:
  JsonHandler(JsonDocument& to, const JsonLimits& limits) : to_(to), limits_(limits) {}

  /// The reason for which a call returned false; empty if none did.
  const std::string& fault() const { return fault_; }

  bool Null() { return add(JsonKind::null); }
  bool Bool(bool value) { return add(JsonKind::boolean, value ? 1 : 0); }
  // Numbers come as text: RapidJSON 1.1 converts 0e144 with undefined behaviour in full precision.
  bool RawNumber(const char* text, std::uint32_t size, bool) {
    const char* const end = text + size;
    std::uint64_t natural = 0;
    if (const auto read = std::from_chars(text, end, natural);
        read.ec == std::errc() && read.ptr == end)
      return add(JsonKind::natural, natural);
    std::int64_t negative = 0;
    if (const auto read = std::from_chars(text, end, negative);
        read.ec == std::errc() && read.ptr == end)
      return add(JsonKind::negative, static_cast<std::uint64_t>(negative));
    double value = 0;
    if (std::from_chars(text, end, value).ec != std::errc())
      return refuse("has a number that does not fit 64 bits");
    return add(JsonKind::fraction, std::bit_cast<std::uint64_t>(value));
  }
  bool String(const char* text, std::uint32_t size, bool) {
    // RapidJSON decodes an escaped low surrogate on its own to invalid UTF-8.
    if (!is_utf8({text, size})) return refuse("has a string with an unpaired surrogate");
    const std::uint64_t offset = to_.texts_.size();
    to_.texts_.append(text, size);
    return add(JsonKind::text, offset << 32 | size);
  }
  bool Key(const char* text, std::uint32_t size, bool copy) { return String(text, size, copy); }
  bool StartObject() { return open(JsonKind::object); }
  bool EndObject(std::uint32_t) { return close(); }
  bool StartArray() { return open(JsonKind::list); }
  bool EndArray(std::uint32_t) { return close(); }

 private:
  static constexpr std::uint32_t none = JsonDocument::none;

  bool refuse(std::string fault) {
    fault_ = std::move(fault);
    return false;
  }
  bool add(JsonKind kind, std::uint64_t bits = 0) {
    if (to_.nodes_.size() == limits_.values)
      return refuse(format_text("has more than {} values", limits_.values));
    const auto number = static_cast<std::uint32_t>(to_.nodes_.size());
    if (last_ != none)
      to_.nodes_[last_].next = number;
    else if (!open_.empty())
      to_.nodes_[open_.back()].bits = 1;
    last_ = number;
    to_.nodes_.push_back({bits, none, kind});
    return true;
  }
  bool open(JsonKind kind) {
    if (open_.size() == limits_.depth)
      return refuse(format_text("is nested deeper than {} levels", limits_.depth));
    if (!add(kind)) return false;
    open_.push_back(last_);
    last_ = none;
    return true;
  }
  bool close() {
    last_ = open_.back();
    open_.pop_back();
    return true;
  }

  JsonDocument& to_;
  JsonLimits limits_;
  std::string fault_;
  std::vector<std::uint32_t> open_;  // containers that are still open
  std::uint32_t last_ = none;        // the previous sibling in the innermost one
};

JsonDocument::JsonDocument(std::string_view text, std::string_view where,
                           const JsonLimits& limits) {
  if (text.size() > limits.bytes)
    throw JsonError("{} has {} bytes; the maximum is {}", where, text.size(), limits.bytes);
  if (text.find_first_not_of(json_blanks) == std::string_view::npos)
    throw JsonError("{} is empty; write a JSON object", where);
  if (text.starts_with("\xEF\xBB\xBF"))
    throw JsonError("{} begins with a byte order mark; save it as UTF-8 without one", where);
  // The parser treats NUL as the end and would ignore the rest.
  if (text.find('\0') != std::string_view::npos)
    throw JsonError("{} contains a NUL byte; write plain UTF-8 text", where);
  // Iterative: deep nesting cannot overflow the stack.
  rapidjson::MemoryStream stream(text.data(), text.size());
  rapidjson::Reader reader;
  JsonHandler handler(*this, limits);
  constexpr unsigned flags = rapidjson::kParseIterativeFlag |
                             rapidjson::kParseNumbersAsStringsFlag |
                             rapidjson::kParseValidateEncodingFlag;
  const rapidjson::ParseResult result = reader.Parse<flags>(stream, handler);
  if (!result.IsError()) return;
  const std::size_t at = std::min(result.Offset(), text.size());
  const std::string place =
      format_text("at byte {}, {}{}", at + 1, at < text.size() ? "before " : "at its end",
                  at < text.size() ? quote(text.substr(at, 24)) : std::string());
  if (!handler.fault().empty())
    throw JsonError("{} {} {}; fix it there", where, handler.fault(), place);
  if (const std::string_view mistake = json_mistake(text, at); !mistake.empty())
    throw JsonError("{} is not valid JSON {}: {}", where, place, mistake);
  std::string fact = rapidjson::GetParseError_En(result.Code());
  if (fact.ends_with('.')) fact.pop_back();
  throw JsonError("{} is not valid JSON {}: {}; fix it there", where, place, fact);
}

}  // namespace lockstep::detail

#pragma pop_macro("Bool")
