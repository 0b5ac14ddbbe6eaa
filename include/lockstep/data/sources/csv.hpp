/// \file
/// CSV: a table as text, one example per line. Invariants: a file is read completely or refused
/// with line, column and column name; a text column uses one vocabulary in all lines.
///
/// Not part of <lockstep/lockstep.hpp>.
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers/finite.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/data/sources/csv_fields.hpp"
#include "lockstep/data/sources/csv_table.hpp"
#include "lockstep/data/sources/tensors.hpp"
#include "lockstep/files/byte_reader.hpp"

namespace lockstep {

namespace detail {

/// Completes `options` with the vocabularies found in this file.
LOCKSTEP_COLD_DECL CsvOptions learn_csv_vocabulary(std::string_view text, const std::string& path,
                                                   const CsvOptions& options);

/// Completes `options` with the target, the columns and the vocabularies of this file.
LOCKSTEP_COLD_DECL CsvOptions complete_csv(std::string_view text, const std::string& path,
                                           const CsvOptions& options);

/// Converts the fields of a table to numbers and appends them to arrays.
class CsvNumbers {
 public:
  CsvNumbers(const CsvTable& table, const CsvOptions& options) : table_(table), options_(options) {}

  /// Appends the numbers of one field. `one_hot`: whether a text column may expand to several
  /// numbers.
  template <class T>
  void add(const CsvColumn& column, std::vector<T>& numbers, bool one_hot) const {
    const std::string_view field = table_.field(column);
    if (column.kind == CsvColumn::Kind::number) {
      numbers.push_back(number<T>(column, field));
      return;
    }
    const auto found = column.words.find(field);
    if (found == column.words.end() && !options_.unknown_words)
      table_.refuse(column, "{} is not in the vocabulary; add it or set .unknown_words",
                    shown_name(field));
    const std::size_t word = found == column.words.end() ? column.words.size() : found->second;
    if (one_hot && column.kind == CsvColumn::Kind::one_hot) {
      for (std::size_t i = 0; i < column.words.size(); ++i) numbers.push_back(T(i == word ? 1 : 0));
      return;
    }
    if (std::same_as<T, std::uint8_t> && word > 255)
      table_.refuse(column, "word index {} does not fit in a byte; use read_csv<float, ...>", word);
    numbers.push_back(static_cast<T>(word));
  }

 private:
  /// The number in a field, or `.missing` for an empty one.
  template <class T>
  T number(const CsvColumn& column, std::string_view field) const {
    const auto value = field.empty() ? missing<T>(column) : csv_value<T>(field);
    if (!value) refuse<T>(column, field);
    if constexpr (std::floating_point<T>)
      if (csv_rounds_integer(field, *value))
        table_.refuse(column,
                      "{} is an integer that {} would round; {}exclude the column with .drop, or "
                      "write a number with a decimal point",
                      shown_name(field), std::same_as<T, float> ? "float" : "double",
                      std::same_as<T, float> ? "use read_csv<double, ...>, " : "");
    if constexpr (std::floating_point<T>)
      if (options_.check_finite && !is_finite(*value))
        table_.refuse(column, "{} is not finite; correct the line, or set .check_finite = false",
                      field.empty() ? ".missing" : shown_name(field));
    return *value;
  }

  /// `.missing` as T; throws if it is not an integer that an integral column can hold.
  template <class T>
  std::optional<T> missing(const CsvColumn& column) const {
    const double value = *options_.missing;
    if constexpr (std::integral<T>)
      if (!(value == std::trunc(value) && value >= std::numeric_limits<T>::min() &&
            value <= std::numeric_limits<T>::max()))
        table_.refuse(
            column,
            "a value is missing, and .missing is not an integer that fits this column; change "
            ".missing");
    return static_cast<T>(value);
  }

  /// Throws the error that fits a field that is not a T, with the remedy for its type.
  template <class T>
  [[noreturn]] void refuse(const CsvColumn& column, std::string_view field) const {
    const bool is_real = csv_number<double>(field).has_value();
    if constexpr (std::same_as<T, std::int32_t>) {
      if (is_real)
        table_.refuse(
            column,
            "{} is not a 32-bit integer, but the target is read as class labels; for regression "
            "use read_csv<float, float>",
            shown_name(field));
      table_.refuse(
          column,
          "{} is not an integer; list a text target in .word_index, or name another column in "
          ".target",
          shown_name(field));
    }
    if (std::same_as<T, std::uint8_t>)
      table_.refuse(
          column, "{} is not an integer from 0 to 255; use read_csv<float, ...> for other numbers",
          shown_name(field));
    if (is_real)
      table_.refuse(column, "{} is out of the range of float; use read_csv<double, ...>",
                    shown_name(field));
    table_.refuse(
        column,
        "{} is not a number; list a text column in .one_hot or .word_index, list a word for "
        "missing values in .missing_words, exclude the column with .drop, or check the header and the "
        "delimiter",
        shown_name(field));
  }

  const CsvTable& table_;
  const CsvOptions& options_;
};

/// Parses the table in `text`, the contents of the file that errors call `path`.
template <class Element, class Target>
Tensors<Element, Target> parse_csv(std::string_view text, const std::string& path,
                                   const CsvOptions& options) {
  const CsvOptions complete = learn_csv_vocabulary(text, path, options);
  CsvTable table(text, path, complete);
  constexpr bool is_label = std::same_as<Target, std::int32_t>;
  std::size_t width = 0;
  for (const CsvColumn& column : table.features()) width += column.width();
  if (width > std::size_t{std::numeric_limits<int>::max()})
    throw DataError(path, "has more than 2147483647 features; split it");
  const CsvNumbers numbers(table, complete);
  std::vector<Element> x;
  std::vector<Target> y;
  while (table.next()) {
    for (const CsvColumn& column : table.features()) numbers.add(column, x, true);
    numbers.add(table.target(), y, !is_label);
  }
  return {std::move(x), shape(static_cast<int>(width)), std::move(y),
          is_label ? Shape{} : shape(static_cast<int>(table.target().width()))};
}

/// A view of the bytes of a file as text.
inline std::string_view csv_text(const std::vector<std::uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace detail

/// Reads a CSV file, plain or gzip; each line is an example. Features are float (or double or
/// std::uint8_t, by `Element`), of shape (columns), wider where `.one_hot` lists text columns.
///
/// `Target` std::int32_t reads class labels of shape (); the label of a text target is its word's
/// number. float or double reads real values, of shape (1), or (words) if `.one_hot` lists the
/// target. Integral values may be written as reals ("1.0"); an integer that its type would round is
/// an error, as in `read_npy`. Spaces around a field are ignored. "nan" and "inf" are errors unless
/// `.check_finite` is false. With `.missing`, a missing text field is the word "".
/// \throws FileError if the file cannot be read; DataError, with line, column (from 1) and column
/// name, for a field that is not a number of its type, an unknown word, a missing field without
/// `.missing`, a line of a different length, or a misplaced quote; UsageError for contradictory
/// options.
/// \code
///   auto houses = lockstep::read_csv<float, float>(                // a regression
///       "houses.csv", {.target = "price", .drop = {"id"}, .one_hot = {"region"}});
///   auto wine = lockstep::read_csv("wine.csv", {.target = "quality"});   // class labels
/// \endcode
template <class Element = float, class Target = std::int32_t>
Tensors<Element, Target> read_csv(const std::filesystem::path& path,
                                  const CsvOptions& options = {}) {
  const std::vector<std::uint8_t> bytes = detail::read_whole(path);
  return detail::parse_csv<Element, Target>(detail::csv_text(bytes), path.string(), options);
}

/// Returns `options` with everything that they leave to the file filled in: the target, the columns
/// by name, and the vocabulary of each text column. Another file read with them gets the same
/// features in the same order (Keras' `StringLookup.adapt`).
/// \throws the same as `read_csv`.
/// \code
///   const auto options = lockstep::adapt_csv("train.csv", {.target = "fare", .one_hot = {"sex"}});
///   auto train = lockstep::read_csv<float, float>("train.csv", options);
///   auto test = lockstep::read_csv<float, float>("test.csv", options);
/// \endcode
LOCKSTEP_COLD_DECL CsvOptions adapt_csv(const std::filesystem::path& path,
                                        const CsvOptions& options = {});

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/data/sources/csv.ipp"
#endif
