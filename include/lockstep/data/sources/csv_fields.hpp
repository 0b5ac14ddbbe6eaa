/// \file
/// The text of a CSV file as lines, fields and numbers. Invariant: a number is rounded to the
/// nearest value of its type, in every locale.
///
/// Not part of <lockstep/lockstep.hpp>.
/// Source: RFC 4180 (quotes, line ends), extended to any delimiter; blank lines are skipped, and
/// blanks around quotes.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::detail {

/// Iterates over the lines of a CSV text and splits them into fields.
class CsvFields {
 public:
  LOCKSTEP_DECL CsvFields(std::string_view text, const std::string& path, char delimiter);

  /// Reads the next non-blank line; false at the end. The fields stay valid until the next call.
  LOCKSTEP_DECL bool next_line(std::vector<std::string_view>& fields);
  const std::string& path() const { return path_; }
  /// Number of the line read last, from 1.
  std::size_t line() const { return line_; }

  /// Throws DataError with the position. `name`: the name of the column, empty if it has none.
  [[noreturn]] LOCKSTEP_COLD_DECL void refuse(std::size_t line, std::size_t column,
                                              std::string_view name, std::string_view fact) const;

 private:
  /// Moves past a line end: LF, CR or CR LF.
  LOCKSTEP_DECL void end_line();

  /// Moves past spaces and tabs, except those that are the delimiter.
  LOCKSTEP_DECL void skip_blanks();

  LOCKSTEP_DECL bool at_end_of_field() const;

  /// The field at the current position.
  LOCKSTEP_DECL std::string_view field(std::size_t column);

  /// The quoted field at the current position, with doubled quotes reduced to one.
  LOCKSTEP_DECL std::string_view quoted(std::size_t column);

  std::string_view text_;
  const std::string& path_;
  char delimiter_;
  std::size_t at_ = 0, line_ = 0, next_number_ = 1;
  std::vector<std::unique_ptr<std::string>> unquoted_;  // fields that had doubled quotes
};

/// The delimiters of common files, which messages suggest.
inline constexpr std::string_view csv_delimiters = ",;\t|";

/// The one of `csv_delimiters`, except `besides`, that occurs most often in `line`; nothing if none
/// does.
LOCKSTEP_COLD_DECL std::optional<char> csv_delimiter_in(std::string_view line, char besides);

/// Whether the decimal number `field` is less than 1 in magnitude, for any exponent.
LOCKSTEP_COLD_DECL bool csv_is_below_one(std::string_view field);

/// Parses `field` as a number; nothing if it is not a number or does not fit in T.
template <class T>
std::optional<T> csv_number(std::string_view field) {
  if (field.size() > 1 && field[0] == '+' && field[1] != '-') field.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (end != field.data() + field.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range && std::floating_point<T>) {
    // Underflow: the nearest subnormal number or zero, as strtod returns.
    if (!csv_is_below_one(field)) return std::nullopt;
    long double wide = field.starts_with('-') ? -0.0L : 0.0L;
    // Leaves 0 in `wide` if long double underflows, too.
    std::from_chars(field.data(), field.data() + field.size(), wide);
    return static_cast<T>(wide);
  }
  if (error != std::errc{}) return std::nullopt;
  return value;
}

/// Parses `field` as a T. An integer may be written as a real number without a fraction, such as
/// "1.0" or "1e3".
template <class T>
std::optional<T> csv_value(std::string_view field) {
  const auto value = csv_number<T>(field);
  if constexpr (std::integral<T>) {
    if (value) return value;
    const auto real = csv_number<double>(field);
    if (real && *real == std::trunc(*real) && *real >= double{std::numeric_limits<T>::min()} &&
        *real <= double{std::numeric_limits<T>::max()})
      return static_cast<T>(*real);
  }
  return value;
}

/// Whether `field` is an integer, in digits only, other than `value`.
LOCKSTEP_DECL bool csv_is_other_integer(std::string_view field, double value);

/// Whether `field` is an integer, in digits only, that T has rounded to `value`.
template <std::floating_point T>
bool csv_rounds_integer(std::string_view field, T value) {
  return field.size() > std::size_t{std::numeric_limits<T>::digits10} &&
         csv_is_other_integer(field, static_cast<double>(value));
}

/// `field` without leading and trailing spaces and tabs.
LOCKSTEP_DECL std::string_view csv_trimmed(std::string_view field);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/data/sources/csv_fields.ipp"
#endif
