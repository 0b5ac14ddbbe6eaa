/// \file
/// Reads hostile JSON. Invariants: nothing recurses, memory is at most some 64 times the text
/// (which is at most 1 MiB), a text that is no JSON is refused with the mistake that people make
/// most where it fits.
///
/// RapidJSON's document, since its iterative parser has no recursion, keeps repeated keys so that
/// they can be refused, and takes all memory from one pool; nlohmann/json keeps only the last of
/// two equal keys.
#pragma once

#include <rapidjson/document.h>
#include <rapidjson/error/en.h>
#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/cluster/shown.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::detail {

inline constexpr std::size_t longest_json = std::size_t{1} << 20;
inline constexpr std::string_view json_blanks = " \t\r\n";

inline std::string_view json_text(const rapidjson::Value& value) {
  return {value.GetString(), value.GetStringLength()};
}

/// What stands at a place where something else must be: "a number", "null".
inline std::string_view json_kind(const rapidjson::Value& value) {
  if (value.IsObject()) return "an object";
  if (value.IsArray()) return "a list";
  if (value.IsString()) return "a text";
  if (value.IsNumber()) return "a number";
  return value.IsNull() ? "null" : "a truth value";
}

/// What people do who write JSON that is none; nothing if this text shows none of it. `at` is the
/// place where the parser gave up.
inline std::string_view json_mistake(std::string_view text, std::size_t at) {
  const auto first = text.find_first_not_of(json_blanks);
  const std::string_view rest = text.substr(at);
  const auto has = [&](std::string_view part) { return text.find(part) != std::string_view::npos; };
  if (text[first] == '/' || text.starts_with("./") || text.ends_with(".json"))
    return "it looks like the name of a file, but must be the JSON itself; options and code take "
           "files: --cluster FILE";
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

/// Parses `text` into `document`. `where` begins the messages.
/// \throws ClusterError
inline void parse_json(std::string_view text, std::string_view where,
                       rapidjson::Document& document) {
  if (text.size() > longest_json)
    throw ClusterError({where, " has ", text.size(), " bytes; the most is ", longest_json});
  if (text.find_first_not_of(json_blanks) == std::string_view::npos)
    throw ClusterError({where, " is empty; write a JSON object"});
  if (text.starts_with("\xEF\xBB\xBF"))
    throw ClusterError({where, " begins with a byte order mark; save it as UTF-8 without one"});
  // The parser takes a NUL for the end and would not look at what follows.
  if (text.find('\0') != std::string_view::npos)
    throw ClusterError({where, " has a NUL byte in it; write plain UTF-8 text"});
  document.Parse<rapidjson::kParseIterativeFlag | rapidjson::kParseValidateEncodingFlag>(
      text.data(), text.size());
  if (!document.HasParseError()) return;
  const std::size_t at = std::min(document.GetErrorOffset(), text.size());
  const std::string_view mistake = json_mistake(text, at);
  const std::string place =
      lockstep::text({where, " is no JSON from byte ", at + 1, " on, ",
                      at < text.size() ? "before " : "at its end",
                      at < text.size() ? shown(text.substr(at, 24)) : std::string()});
  if (!mistake.empty()) throw ClusterError({place, ": ", mistake});
  std::string fact = rapidjson::GetParseError_En(document.GetParseError());
  if (fact.ends_with('.')) fact.pop_back();
  throw ClusterError({place, ": ", fact, "; mend it there"});
}

}  // namespace lockstep::detail
