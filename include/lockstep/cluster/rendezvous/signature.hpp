/// \file
/// Comparison of what must be equal on all ranks. Invariant: a difference is reported by field,
/// both ranks and both values, as printable characters on one short line in which the shown values
/// differ; fields of any length can be compared.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/quote.hpp"

namespace lockstep::detail {

/// A longer value is replaced by its digest in the first frame of a connection.
inline constexpr std::size_t max_join_value_bytes = 768;

/// `value` in quotes, shortened around `difference`. A long value is a list "name of an item, ...;
/// name of an item, ...": it is cut to the item that differs, or to that item's name and the part
/// that differs.
[[gnu::cold]] inline std::string quote_from(std::string_view value, std::size_t difference) {
  constexpr std::size_t lead = 48, max_item_name = 32, fits = 72;
  difference = std::min(difference, value.size());
  const std::string_view before = value.substr(0, difference);
  const auto printable = [](char c) { return c >= 0x20 && c < 0x7F; };
  if (!std::all_of(before.begin(), before.end(), printable))  // escapes: 4 characters a byte
    return difference <= 10 ? quote(value) : "..." + quote(value.substr(difference - 10));
  if (value.size() <= fits || difference <= lead) return quote(value);
  // Cut to the item that differs; if that is still too long, to its name and the part.
  const std::size_t last = before.rfind("; "), item = last == std::string_view::npos ? 0 : last + 2;
  const std::string_view cut = item == 0 ? "" : "...";
  if (difference - item <= lead) return std::string(cut) + quote(value.substr(item));
  const std::size_t name = value.find_first_of(" ,;", item) - item;
  const auto begins_part = [&](std::size_t at) {
    return at >= 2 && before.substr(at - 2, 2) == ", ";
  };
  std::size_t from = difference - lead;  // later: the start of a part that begins with a letter
  while (from < difference && !(begins_part(from) && before[from] >= 'a')) ++from;
  if (from == difference) from = difference - lead / 2;
  if (name > max_item_name) return "..." + quote(value.substr(from));
  return std::string(cut) +
         quote(format_text("{} ... {}", value.substr(item, name), value.substr(from)));
}

/// The first field in which `a` and `b` differ, as a sentence; nullopt if they are equal. `name_a`
/// and `name_b` are such as "rank 0 (10.0.0.1:12345)".
[[gnu::cold]] inline std::optional<std::string> difference(std::string_view part,
                                                           const std::string& name_a,
                                                           const std::vector<SignatureField>& a,
                                                           const std::string& name_b,
                                                           const std::vector<SignatureField>& b) {
  const auto value_of = [](const std::vector<SignatureField>& fields, const std::string& name) {
    const auto i = std::find_if(fields.begin(), fields.end(),
                                [&](const SignatureField& field) { return field.first == name; });
    return i == fields.end() ? nullptr : &i->second;
  };
  const auto differ = [&](const std::string& field, const std::string* x, const std::string* y) {
    std::size_t at = 0;
    if (x && y)
      while (at < x->size() && at < y->size() && (*x)[at] == (*y)[at]) ++at;
    const auto value_at = [at](const std::string* value) {
      return value ? quote_from(*value, at) : std::string("nothing");
    };
    return format_text("{}: {} and {} differ in {}: {} and {}; {}", part, name_a, name_b,
                       quote(field), value_at(x), value_at(y), remedy_of_difference(field));
  };
  for (const auto& [name, value] : a) {
    const std::string* const other = value_of(b, name);
    if (!other || *other != value) return differ(name, &value, other);
  }
  for (const auto& [name, value] : b)
    if (!value_of(a, name)) return differ(name, nullptr, &value);
  return std::nullopt;
}

/// Splits `fields` into chunks of at most `room` bytes, one per frame. A value that does not fit
/// continues in the next chunk under the same name. Every chunk but the last ends with the name of
/// the next field, so that ranks with different numbers of chunks differ in a chunk that both have.
/// \throws UsageError for a name that is too long.
[[gnu::cold]] inline std::vector<std::vector<SignatureField>> split_fields(
    const std::vector<SignatureField>& fields, std::size_t room = max_frame_bytes / 2) {
  std::vector<std::vector<SignatureField>> result(1);
  std::size_t left = room;
  for (const auto& [name, value] : fields) {
    if (name.size() > max_name_bytes)
      throw UsageError("rendezvous: a field name has {} characters; the maximum is {}", name.size(),
                       max_name_bytes);
    const std::size_t frame_of_field = name.size() + 8;
    std::string_view rest = value;
    do {
      if (left <= frame_of_field) {
        result.back().emplace_back("next field", name);
        result.emplace_back();
        left = room;
      }
      const std::string_view now = rest.substr(0, left - frame_of_field);
      result.back().emplace_back(name, now);
      left -= frame_of_field + now.size();
      rest.remove_prefix(now.size());
    } while (!rest.empty());
  }
  return result;
}

/// \throws UsageError if `fields`, with long values as digests, do not fit into the first frame of
/// a connection.
[[gnu::cold]] inline void check_join_fields(const std::vector<SignatureField>& fields) {
  constexpr std::size_t room = max_first_frame_bytes - 1536;  // job id, version, cluster
  std::size_t size = 0;
  for (const auto& [name, value] : fields)
    size += name.size() + std::min(value.size(), max_join_value_bytes) + 8;
  if (size > room)
    throw UsageError(
        "rendezvous: the join signature takes {} bytes, but only {} fit; compare "
        "by agree() what the join need not know",
        size, room);
}

}  // namespace lockstep::detail
