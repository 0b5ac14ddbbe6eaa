/// \file
/// The text of a CSV file as lines, fields and numbers. Invariant: a number is the nearest one of
/// its type, whatever the locale.
///
/// Not part of <lockstep/lockstep.hpp>.
/// Source: RFC 4180 (quotes, line ends), with any delimiter and blank lines left out.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::detail {

/// Walks through the fields of a CSV text.
class CsvFields {
 public:
  LOCKSTEP_DECL CsvFields(std::string_view text, const std::string& path, char delimiter);

  /// The next line that is not blank; false at the end. Fields live until the next call.
  LOCKSTEP_DECL bool next_line(std::vector<std::string_view>& fields);
  const std::string& path() const { return path_; }
  /// Number of the last line, from 1.
  std::size_t line() const { return line_; }

  /// `name`: the column's, empty if there is none.
  [[noreturn]] LOCKSTEP_COLD_DECL void refuse(std::size_t line, std::size_t column,
                                              std::string_view name, std::string_view fact) const;

 private:
  LOCKSTEP_DECL void end_line();

  LOCKSTEP_DECL std::string_view field(std::size_t column);

  LOCKSTEP_DECL std::string_view quoted(std::size_t column);

  std::string_view text_;
  const std::string& path_;
  char delimiter_;
  std::size_t at_ = 0, line_ = 0, next_number_ = 1;
  std::vector<std::unique_ptr<std::string>> unquoted_;  // of the line, where quotes were doubled
};

/// Whether a decimal number is less than 1 in magnitude, whatever its exponent; `field` is one.
LOCKSTEP_COLD_DECL bool csv_is_below_one(std::string_view field);

/// The number that `field` is; nothing if it is none or does not fit T.
template <class T>
std::optional<T> csv_number(std::string_view field) {
  if (field.size() > 1 && field[0] == '+' && field[1] != '-') field.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (end != field.data() + field.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range && std::floating_point<T>) {
    // Below the smallest number of the type: the nearest one or zero, as strtod has it.
    if (!csv_is_below_one(field)) return std::nullopt;
    long double wide = field.starts_with('-') ? -0.0L : 0.0L;
    std::from_chars(field.data(), field.data() + field.size(), wide);  // 0 if it is below that, too
    return static_cast<T>(wide);
  }
  if (error != std::errc{}) return std::nullopt;
  return value;
}

LOCKSTEP_DECL std::string_view csv_trimmed(std::string_view field);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/data/sources/csv_fields.ipp"
#endif
