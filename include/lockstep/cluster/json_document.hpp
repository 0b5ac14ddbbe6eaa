/// \file
/// Reads hostile JSON. Invariants: nothing recurses, memory is at most some 64 times the text
/// (which is at most 1 MiB), a text that is no JSON is refused with the mistake that people make
/// most where it fits.
///
/// RapidJSON's reader, since its iterative parser has no recursion and reports repeated keys, so
/// that they can be refused; nlohmann/json keeps only the last of two equal keys. Not RapidJSON's
/// document: its header (1.1.0) does not compile with g++ 14 and clang 19.
#pragma once

#include <rapidjson/error/en.h>
#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/shown.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::detail {

inline constexpr std::size_t longest_json = std::size_t{1} << 20;
inline constexpr std::string_view json_blanks = " \t\r\n";

/// What a value is. A whole number that fits 64 bits is `natural` or `negative`, all others
/// `fraction`.
enum class JsonKind : std::uint8_t {
  null,
  boolean,
  natural,
  negative,
  fraction,
  text,
  list,
  object
};

class JsonValue;
struct JsonMember;

/// A parsed text: the handler of RapidJSON's reader. Values lie one after the other in the order
/// of the text, 16 bytes each, and are chained by their numbers:
///
///     {"a": [1, 2]}     0 object --first--> 1 text a --next--> 2 list
///                                                              2 --first--> 3 --next--> 4
class JsonDocument : public rapidjson::BaseReaderHandler<rapidjson::UTF8<>, JsonDocument> {
 public:
  /// Parses `text`. `where` begins the messages. \throws ClusterError
  JsonDocument(std::string_view text, std::string_view where);
  JsonDocument(const JsonDocument&) = delete;
  JsonDocument& operator=(const JsonDocument&) = delete;

  JsonValue root() const;

  // The events of the reader.
  bool Null() { return add(JsonKind::null); }
  bool Bool(bool) { return add(JsonKind::boolean); }
  bool Int(int value) { return Int64(value); }
  bool Uint(unsigned value) { return Uint64(value); }
  bool Int64(std::int64_t value) {
    return add(value < 0 ? JsonKind::negative : JsonKind::natural,
               static_cast<std::uint64_t>(value));
  }
  bool Uint64(std::uint64_t value) { return add(JsonKind::natural, value); }
  bool Double(double) { return add(JsonKind::fraction); }
  bool String(const char* text, std::uint32_t size, bool) {
    const std::uint64_t offset = texts_.size();
    texts_.append(text, size);
    return add(JsonKind::text, offset << 32 | size);
  }
  bool Key(const char* text, std::uint32_t size, bool copy) { return String(text, size, copy); }
  bool StartObject() { return open(JsonKind::object); }
  bool EndObject(std::uint32_t) { return close(); }
  bool StartArray() { return open(JsonKind::list); }
  bool EndArray(std::uint32_t) { return close(); }

 private:
  friend class JsonValue;
  static constexpr std::uint32_t none = 0xFFFF'FFFF;

  /// `bits`: a number, the place and size of a text, or 1 for a container that is not empty.
  struct Node {
    std::uint64_t bits;
    std::uint32_t next;  ///< in the same container; none: the last one
    JsonKind kind;
  };

  bool add(JsonKind kind, std::uint64_t bits = 0) {
    const auto number = static_cast<std::uint32_t>(nodes_.size());
    if (last_ != none)
      nodes_[last_].next = number;
    else if (!open_.empty())
      nodes_[open_.back()].bits = 1;
    last_ = number;
    nodes_.push_back({bits, none, kind});
    return true;
  }
  bool open(JsonKind kind) {
    add(kind);
    open_.push_back(last_);
    last_ = none;
    return true;
  }
  bool close() {
    last_ = open_.back();
    open_.pop_back();
    return true;
  }

  std::vector<Node> nodes_;
  std::vector<std::uint32_t> open_;  ///< containers whose end has not come
  std::uint32_t last_ = none;        ///< the value before, in the innermost open container
  std::string texts_;                ///< of all values and keys, decoded
};

/// A value in a JsonDocument, which must outlive it.
class JsonValue {
 public:
  JsonKind kind() const { return node().kind; }
  bool is_text() const { return kind() == JsonKind::text; }
  bool is_list() const { return kind() == JsonKind::list; }
  bool is_object() const { return kind() == JsonKind::object; }
  /// Whether a list or an object has nothing in it.
  bool empty() const { return node().bits == 0; }

  std::string_view text() const {
    return std::string_view(document_->texts_)
        .substr(static_cast<std::size_t>(node().bits >> 32), node().bits & 0xFFFF'FFFF);
  }
  /// Of a natural number.
  std::uint64_t natural() const { return node().bits; }
  /// Of a negative one.
  std::int64_t negative() const { return static_cast<std::int64_t>(node().bits); }

  /// Of a list, in its order.
  std::vector<JsonValue> values() const {
    std::vector<JsonValue> result;
    for (std::uint32_t i = first(); i != JsonDocument::none; i = document_->nodes_[i].next)
      result.push_back({*document_, i});
    return result;
  }
  /// Of an object, in its order. Keys may be repeated.
  std::vector<JsonMember> members() const;

 private:
  friend class JsonDocument;
  JsonValue(const JsonDocument& document, std::uint32_t number)
      : document_(&document), number_(number) {}
  const JsonDocument::Node& node() const { return document_->nodes_[number_]; }
  std::uint32_t first() const { return empty() ? JsonDocument::none : number_ + 1; }

  const JsonDocument* document_;
  std::uint32_t number_;
};

/// A key and its value.
struct JsonMember {
  std::string_view key;
  JsonValue value;
};

inline JsonValue JsonDocument::root() const { return {*this, 0}; }

inline std::vector<JsonMember> JsonValue::members() const {
  std::vector<JsonMember> result;
  for (std::uint32_t i = first(); i != JsonDocument::none;) {
    const std::uint32_t value = document_->nodes_[i].next;
    result.push_back({JsonValue(*document_, i).text(), {*document_, value}});
    i = document_->nodes_[value].next;
  }
  return result;
}

/// What stands at a place where something else must be: "a number", "null".
inline std::string_view json_kind(const JsonValue& value) {
  switch (value.kind()) {
    case JsonKind::null:
      return "null";
    case JsonKind::boolean:
      return "a truth value";
    case JsonKind::text:
      return "a text";
    case JsonKind::list:
      return "a list";
    case JsonKind::object:
      return "an object";
    default:
      return "a number";
  }
}

/// What people do who write JSON that is none; nothing if this text shows none of it. `at` is the
/// place where the parser gave up.
inline std::string_view json_mistake(std::string_view text, std::size_t at) {
  const auto first = text.find_first_not_of(json_blanks);
  const std::string_view rest = text.substr(at);
  const auto has = [&](std::string_view part) { return text.find(part) != std::string_view::npos; };
  if (text[first] == '/' || text.starts_with("./") || text.ends_with(".json"))
    return "it looks like the name of a file, but must be the JSON itself; a program reads a file "
           "with lockstep::read_cluster_file";
  if (has("\xE2\x80\x9C") || has("\xE2\x80\x9D"))
    return "it has typographic quotes; write plain double quotes";
  if (text[first] == '\'')
    return "it begins with a single quote, which the shell should have taken away; remove the "
           "outer quotes";
  if (rest.starts_with('\''))
    return "it has single quotes, as Python prints a dict; write double quotes, in Python with "
           "json.dumps";
  if (rest.starts_with("None") || rest.starts_with("True") || rest.starts_with("False"))
    return "it has a word of Python; write null, true or false, in Python with json.dumps";
  if (rest.starts_with("//") || rest.starts_with("/*") || rest.starts_with('#'))
    return "it has a comment, which JSON has not; take it away";
  if (rest.starts_with("\\\""))
    return "its quotes have backslashes before them; write them without";
  if (rest.starts_with('}') || rest.starts_with(']')) {
    const auto before = text.find_last_not_of(json_blanks, at == 0 ? 0 : at - 1);
    if (before != std::string_view::npos && text[before] == ',')
      return "it has a comma before a closing bracket; take the comma away";
  }
  if (rest.empty() || at >= text.find_last_not_of(json_blanks) + 1)
    return "it ends too early; a closing bracket or quote is missing";
  if (!has("\""))
    return "it has no double quotes, perhaps since the shell took them; put single quotes around "
           "the whole value";
  return "";
}

inline JsonDocument::JsonDocument(std::string_view text, std::string_view where) {
  if (text.size() > longest_json)
    throw ClusterError({where, " has ", text.size(), " bytes; the most is ", longest_json});
  if (text.find_first_not_of(json_blanks) == std::string_view::npos)
    throw ClusterError({where, " is empty; write a JSON object"});
  if (text.starts_with("\xEF\xBB\xBF"))
    throw ClusterError({where, " begins with a byte order mark; save it as UTF-8 without one"});
  // The parser takes a NUL for the end and would not look at what follows.
  if (text.find('\0') != std::string_view::npos)
    throw ClusterError({where, " has a NUL byte in it; write plain UTF-8 text"});
  rapidjson::MemoryStream stream(text.data(), text.size());
  rapidjson::Reader reader;
  const rapidjson::ParseResult result = reader.Parse < rapidjson::kParseIterativeFlag |
                                        rapidjson::kParseValidateEncodingFlag > (stream, *this);
  if (!result.IsError()) return;
  const std::size_t at = std::min(result.Offset(), text.size());
  const std::string_view mistake = json_mistake(text, at);
  const std::string place =
      lockstep::text({where, " is no JSON from byte ", at + 1, " on, ",
                      at < text.size() ? "before " : "at its end",
                      at < text.size() ? shown(text.substr(at, 24)) : std::string()});
  if (!mistake.empty()) throw ClusterError({place, ": ", mistake});
  std::string fact = rapidjson::GetParseError_En(result.Code());
  if (fact.ends_with('.')) fact.pop_back();
  throw ClusterError({place, ": ", fact, "; mend it there"});
}

}  // namespace lockstep::detail
