/// \file
/// CSV: a table of numbers as text, one example a line. Invariants: a file is read whole or refused
/// with line and column; a number is the nearest one of its type, whatever the locale.
///
/// Not part of <lockstep/lockstep.hpp>.
/// Source: RFC 4180 (quotes, line ends), with any delimiter and blank lines left out.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/data/byte_reader.hpp"
#include "lockstep/data/tensors.hpp"

namespace lockstep {

/// How a CSV file is read.
struct CsvOptions {
  char delimiter = ',';
  bool header = true;    ///< the first line names the columns
  std::string target{};  ///< the target's column, by name; without a header by number from 0;
                         ///< empty: the last
  std::optional<double> missing{};  ///< the value of an empty field; nothing: it is an error
};

namespace detail {

/// Walks through the fields of a CSV text.
class CsvFields {
 public:
  CsvFields(std::string_view text, const std::string& path, char delimiter)
      : text_(text), path_(path), delimiter_(delimiter) {
    if (text_.substr(0, 3) == "\xef\xbb\xbf") at_ = 3;  // the mark that some programs write
  }

  /// The next line that is not blank; false at the end. Fields live until the next call.
  bool next_line(std::vector<std::string_view>& fields) {
    fields.clear();
    unquoted_.clear();
    while (at_ < text_.size() && (text_[at_] == '\n' || text_[at_] == '\r')) end_line();
    if (at_ == text_.size()) return false;
    line_ = next_number_;
    for (;;) {
      fields.push_back(field(fields.size() + 1));
      if (at_ < text_.size() && text_[at_] == delimiter_) {
        ++at_;
        continue;
      }
      if (at_ < text_.size()) end_line();
      return true;
    }
  }
  /// Number of the last line, from 1.
  std::size_t line() const { return line_; }

  [[noreturn, gnu::cold]] void refuse(std::size_t line, std::size_t column,
                                      std::initializer_list<Piece> fact) const {
    throw DataError(path_, {"line ", line, ", column ", column, ": ", text(fact)});
  }

 private:
  void end_line() {
    if (text_[at_] == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') ++at_;
    ++at_;
    ++next_number_;
  }

  std::string_view field(std::size_t column) {
    if (at_ < text_.size() && text_[at_] == '"') return quoted(column);
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != delimiter_ && text_[at_] != '\n' &&
           text_[at_] != '\r') {
      if (text_[at_] == '"')
        refuse(next_number_, column,
               {"a quote within a field; quote the whole field, and double "
                "the quotes in it"});
      ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }

  std::string_view quoted(std::size_t column) {
    const std::size_t line = next_number_, begin = ++at_;
    bool doubled = false;
    for (;; ++at_) {
      if (at_ == text_.size())
        refuse(line, column, {"a quoted field without an end; close the quote"});
      if (text_[at_] == '\n') ++next_number_;
      if (text_[at_] != '"') continue;
      if (at_ + 1 == text_.size() || text_[at_ + 1] != '"') break;
      doubled = true;
      ++at_;
    }
    const std::string_view inside = text_.substr(begin, at_ - begin);
    ++at_;
    if (at_ < text_.size() && text_[at_] != delimiter_ && text_[at_] != '\n' && text_[at_] != '\r')
      refuse(next_number_, column,
             {"something after the closing quote; double the quotes within a "
              "quoted field"});
    if (!doubled) return inside;
    unquoted_.push_back(std::make_unique<std::string>());
    std::string& plain = *unquoted_.back();
    for (std::size_t i = 0; i < inside.size(); ++i) {
      plain += inside[i];
      if (inside[i] == '"') ++i;
    }
    return plain;
  }

  std::string_view text_;
  const std::string& path_;
  char delimiter_;
  std::size_t at_ = 0, line_ = 0, next_number_ = 1;
  std::vector<std::unique_ptr<std::string>> unquoted_;  // of the line, where quotes were doubled
};

/// The number that `field` is; nothing if it is none or does not fit T.
template <class T>
std::optional<T> csv_number(std::string_view field) {
  if (field.size() > 1 && field[0] == '+' && field[1] != '-') field.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (end != field.data() + field.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range && std::floating_point<T>) {
    // Too small to be told from zero is zero, as strtod has it; too large is none.
    if constexpr (!std::same_as<T, long double>) {
      long double wide = 0;
      if (std::from_chars(field.data(), field.data() + field.size(), wide).ec == std::errc{} &&
          std::abs(wide) < 1)
        return static_cast<T>(wide);
    }
    return std::nullopt;
  }
  if (error != std::errc{}) return std::nullopt;
  return value;
}

inline std::string_view csv_trimmed(std::string_view field) {
  while (!field.empty() && (field.front() == ' ' || field.front() == '\t')) field.remove_prefix(1);
  while (!field.empty() && (field.back() == ' ' || field.back() == '\t')) field.remove_suffix(1);
  return field;
}

/// Which column, from 0, is the target.
[[gnu::cold]] inline std::size_t csv_target(const CsvOptions& options, const std::string& path,
                                            const std::vector<std::string>& names) {
  if (options.target.empty()) return names.size() - 1;
  if (options.header) {
    const auto found = std::find(names.begin(), names.end(), options.target);
    if (found == names.end()) {
      std::string has;
      for (std::size_t i = 0; i < names.size() && i < 8; ++i)
        has += (i > 0 ? ", " : "") + shown_name(names[i]);
      throw DataError(path, {"has no column ", shown_name(options.target), "; its columns are ",
                             has, names.size() > 8 ? ", ..." : ""});
    }
    if (std::find(found + 1, names.end(), options.target) != names.end())
      throw DataError(path, {"has two columns ", shown_name(options.target),
                             "; give the target a name of its own"});
    return static_cast<std::size_t>(found - names.begin());
  }
  const auto column = csv_number<std::uint32_t>(options.target);
  if (!column || *column >= names.size())
    throw DataError(path, {"has ", names.size(),
                           " columns and no header, so the target is a "
                           "number from 0 to ",
                           names.size() - 1, ", not ", shown_name(options.target)});
  return *column;
}

/// The table in `text`, which is the content of the file that errors name `path`.
template <class Element, class Target>
[[gnu::cold]] Tensors<Element, Target> parse_csv(std::string_view text, const std::string& path,
                                                 const CsvOptions& options) {
  if (std::string_view("\"\r\n+-.").find(options.delimiter) != std::string_view::npos ||
      (options.delimiter >= '0' && options.delimiter <= '9'))
    throw UsageError({"read_csv: the delimiter is ", shown_name({&options.delimiter, 1}),
                      ", which stands within numbers, quotes or line ends; give another one"});
  CsvFields lines(text, path, options.delimiter);
  std::vector<std::string_view> fields;
  if (!lines.next_line(fields)) throw DataError(path, "has no line; give it at least one");
  std::vector<std::string> names;
  for (const std::string_view field : fields) names.emplace_back(csv_trimmed(field));
  if (names.size() < 2)
    throw DataError(path, {"has one column, where an example has features and a target; check the "
                           "delimiter ",
                           shown_name({&options.delimiter, 1})});
  const std::size_t target = csv_target(options, path, names);

  std::vector<Element> x;
  std::vector<Target> y;
  const auto add = [&](auto& numbers, std::size_t column) {
    using T = typename std::remove_reference_t<decltype(numbers)>::value_type;
    const std::string_view field = csv_trimmed(fields[column]);
    std::optional<T> number;
    if (!field.empty()) {
      number = csv_number<T>(field);
    } else if (!options.missing) {
      lines.refuse(lines.line(), column + 1, {"a value is missing; give .missing a value for it"});
    } else if constexpr (std::floating_point<T>) {
      number = static_cast<T>(*options.missing);
    } else if (*options.missing == std::trunc(*options.missing) &&
               *options.missing >= std::numeric_limits<T>::min() &&
               *options.missing <= std::numeric_limits<T>::max()) {
      number = static_cast<T>(*options.missing);
    } else {
      lines.refuse(lines.line(), column + 1,
                   {"a value is missing, and .missing is no integer of this column; change it"});
    }
    if (!number)
      lines.refuse(lines.line(), column + 1,
                   {shown_name(field), " is no ",
                    std::same_as<T, std::uint8_t>   ? "byte from 0 to 255"
                    : std::same_as<T, std::int32_t> ? "integer of 32 bits"
                                                    : "number of this type",
                    "; check the file, the header and the delimiter"});
    numbers.push_back(*number);
  };
  for (bool more = !options.header || lines.next_line(fields); more;
       more = lines.next_line(fields)) {
    if (fields.size() != names.size())
      lines.refuse(lines.line(), std::min(fields.size(), names.size()) + 1,
                   {"the line has ", fields.size(), " columns, the first has ", names.size(),
                    "; give each line as many"});
    for (std::size_t column = 0; column < fields.size(); ++column)
      if (column == target)
        add(y, column);
      else
        add(x, column);
  }
  if (names.size() > std::size_t{std::numeric_limits<int>::max()})
    throw DataError(path, "has more than 2147483647 columns; split it");
  return {std::move(x), shape(static_cast<int>(names.size() - 1)), std::move(y),
          std::same_as<Target, std::int32_t> ? Shape{} : shape(1)};
}

}  // namespace detail

/// Reads a CSV file, plain or gzip: each line an example, whose features are all columns but the
/// target's, in order. Features have shape (columns - 1); a label (`Target` std::int32_t) has shape
/// (), a real target shape (1). Blanks around a field do not count; "nan" and "inf" are numbers.
/// \throws FileError if the file cannot be read; DataError, with line and column counted from 1,
/// for a field that is no number of its type, a missing one without `.missing`, a line of another
/// length, or a quote out of place; UsageError for a delimiter that cannot be one.
/// \code
///   auto wine = lockstep::read_csv<float, std::int32_t>("wine.csv", {.target = "quality"});
/// \endcode
template <class Element = float, class Target = std::int32_t>
[[gnu::cold]] Tensors<Element, Target> read_csv(const std::filesystem::path& path,
                                                const CsvOptions& options = {}) {
  const std::vector<std::uint8_t> bytes = detail::read_whole(path);
  return detail::parse_csv<Element, Target>(
      {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string(), options);
}

}  // namespace lockstep
