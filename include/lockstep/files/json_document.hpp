/// \file
/// A parser for untrusted JSON. Invariants: nothing recurses; memory is at most about 64 times the
/// size of the text, which is bounded; invalid text is refused, with the most common mistake that
/// fits.
///
/// The reader is RapidJSON's, because its iterative parser does not recurse and reports repeated
/// keys, so that they can be refused; nlohmann/json keeps only the last of two equal keys.
/// RapidJSON's own document is not used: its header (1.1.0) does not compile with g++ 14 and clang
/// 19.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::detail {

/// A text that is not valid JSON.
class JsonError : public Error {
 public:
  using Error::Error;
};

/// Limits of a text. Each value takes 16 bytes while it is parsed.
struct JsonLimits {
  std::size_t bytes = std::size_t{1} << 20;
  std::size_t depth = std::numeric_limits<std::size_t>::max();   ///< objects and lists
  std::size_t values = std::numeric_limits<std::size_t>::max();  ///< keys included
};
/// The white space of JSON.
inline constexpr std::string_view json_blanks = " \t\r\n";

/// The kind of a value. An integer that fits 64 bits is `natural` or, with a minus sign, `negative`;
/// all other numbers are `fraction`. So -0 is `negative`.
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

/// A parsed text. Values are stored in text order, 16 bytes each, and linked by index:
///
///     {"a": [1, 2]}     0 object --first--> 1 text a --next--> 2 list
///                                                              2 --first--> 3 --next--> 4
class JsonDocument {
 public:
  /// Parses `text`. `where` begins the messages. All texts of a document are UTF-8.
  /// \throws JsonError if `text` is not valid JSON or exceeds a limit.
  LOCKSTEP_COLD_DECL JsonDocument(std::string_view text, std::string_view where,
                                  const JsonLimits& limits = {});
  JsonDocument(const JsonDocument&) = delete;
  JsonDocument& operator=(const JsonDocument&) = delete;

  /// The outermost value.
  LOCKSTEP_COLD_DECL JsonValue root() const;

 private:
  friend class JsonValue;
  friend class JsonHandler;
  static constexpr std::uint32_t none = 0xFFFF'FFFF;

  /// `bits`: a number or boolean; offset and size of a text; or 1 for a container that is not
  /// empty.
  struct Node {
    std::uint64_t bits;
    std::uint32_t next;  ///< the next sibling; none: this is the last one
    JsonKind kind;
  };

  std::vector<Node> nodes_;
  std::string texts_;  ///< all texts and keys, decoded
};

/// A reference to a value in a JsonDocument, which must outlive it.
class JsonValue {
 public:
  JsonKind kind() const { return node().kind; }
  bool is_text() const { return kind() == JsonKind::text; }
  bool is_list() const { return kind() == JsonKind::list; }
  bool is_object() const { return kind() == JsonKind::object; }
  /// True for a list or object without elements.
  bool empty() const { return node().bits == 0; }
  bool is_number() const {
    return kind() == JsonKind::natural || kind() == JsonKind::negative ||
           kind() == JsonKind::fraction;
  }

  /// The decoded text. Precondition: is_text().
  std::string_view text() const {
    return std::string_view(document_->texts_)
        .substr(static_cast<std::size_t>(node().bits >> 32), node().bits & 0xFFFF'FFFF);
  }
  /// Precondition: kind() == natural.
  std::uint64_t natural() const { return node().bits; }
  /// Precondition: kind() == negative.
  std::int64_t negative() const { return static_cast<std::int64_t>(node().bits); }

  /// Precondition: kind() == boolean.
  bool boolean() const { return node().bits != 0; }
  /// Any number as the nearest double. Precondition: is_number().
  double number() const {
    return kind() == JsonKind::natural    ? static_cast<double>(natural())
           : kind() == JsonKind::negative ? static_cast<double>(negative())
                                          : std::bit_cast<double>(node().bits);
  }

  /// The elements of a list, in order.
  LOCKSTEP_COLD_DECL std::vector<JsonValue> values() const;
  /// Number of members of an object.
  LOCKSTEP_COLD_DECL std::size_t member_count() const;
  /// The members of an object, in order. Keys may be repeated.
  LOCKSTEP_COLD_DECL std::vector<JsonMember> members() const;

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

/// The kind of a value, for messages: "a number", "null".
LOCKSTEP_COLD_DECL std::string_view json_kind(const JsonValue& value);

/// A key that two of the members have; nullopt if all keys differ.
LOCKSTEP_COLD_DECL std::optional<std::string_view> repeated_key(
    const std::vector<JsonMember>& members);

/// Members of an object by key. \throws JsonError if `object` is not an object, has no such member,
/// or has one of another kind.
LOCKSTEP_COLD_DECL JsonValue json_member(const JsonValue& object, std::string_view key);
/// Nullopt if the object has no such member.
LOCKSTEP_COLD_DECL std::optional<JsonValue> json_find(const JsonValue& object,
                                                      std::string_view key);
LOCKSTEP_COLD_DECL std::string_view json_text(const JsonValue& object, std::string_view key);
LOCKSTEP_COLD_DECL std::uint64_t json_natural(const JsonValue& object, std::string_view key);
LOCKSTEP_COLD_DECL bool json_boolean(const JsonValue& object, std::string_view key);
LOCKSTEP_COLD_DECL std::vector<JsonValue> json_list(const JsonValue& object, std::string_view key);
/// A number; also one of the texts "nan", "inf" and "-inf", since JSON has no such numbers.
/// \throws JsonError for any other value.
LOCKSTEP_COLD_DECL double json_double(const JsonValue& value);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/files/json_document.ipp"
#endif
