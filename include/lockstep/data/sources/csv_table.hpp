/// \file
/// Selects the columns of a CSV file and iterates over its lines. Invariants: a column named in the
/// options exists exactly once, or the file is refused; every line has as many fields as the first.
///
/// Not part of <lockstep/lockstep.hpp>.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/data/sources/csv_fields.hpp"

namespace lockstep {

/// Options for reading a CSV file. A column is identified by its name or, without a header, by its
/// number from 0 ("2").
struct CsvOptions {
  char delimiter = ',';
  /// Whether the first line names the columns. Unset: it does; a first line of numbers only, or with
  /// a number such as 5.1, is an error.
  std::optional<bool> header{};
  std::string target{};             ///< the target column; empty: the last
  std::optional<double> missing{};  ///< the value of a missing field; unset: an error
  /// Fields to treat as missing, in addition to empty ones.
  std::vector<std::string> missing_words{};
  std::vector<std::string> columns{};  ///< the features, in this order; empty: all but the target
  std::vector<std::string> drop{};     ///< columns to ignore
  /// Text columns to encode as one-hot vectors over their vocabulary.
  std::vector<std::string> one_hot{};
  /// Text columns to encode as the index of the word in the vocabulary, from 0.
  std::vector<std::string> word_index{};
  /// The vocabulary of a column. Without an entry, the words in the file, sorted by bytes.
  std::map<std::string, std::vector<std::string>> vocabulary{};
  /// Whether to accept words outside the vocabulary: as a zero vector in `one_hot`, as the size of
  /// the vocabulary in `word_index`.
  bool unknown_words = false;
  bool check_finite = true;  ///< whether nan and inf, also as `.missing`, are errors
};

namespace detail {

/// A column to read.
struct CsvColumn {
  enum class Kind : std::uint8_t { number, one_hot, word_index };
  std::size_t index = 0;
  std::string name;  ///< as in the options
  Kind kind = Kind::number;
  std::map<std::string, std::size_t, std::less<>> words{};  ///< each word with its index

  /// How many features the column contributes.
  std::size_t width() const { return kind == Kind::one_hot ? words.size() : 1; }
};

/// A CSV file as lines of selected columns.
class CsvTable {
 public:
  /// \throws DataError if the options do not match the file; UsageError if they contradict each
  /// other.
  LOCKSTEP_COLD_DECL CsvTable(std::string_view text, const std::string& path,
                              const CsvOptions& options);

  const std::vector<CsvColumn>& features() const { return features_; }
  const CsvColumn& target() const { return target_; }

  /// Reads the next line of data; false at the end.
  /// \throws DataError if the line does not have as many columns as the first.
  LOCKSTEP_DECL bool next();
  /// The field of a column; empty if the value is missing and `.missing` is set.
  LOCKSTEP_DECL std::string_view field(const CsvColumn& column) const;
  template <class... Args>
  [[noreturn, gnu::cold]] void refuse(const CsvColumn& column, FormatText<Args...> fact,
                                      const Args&... args) const {
    refuse_with(column, format_text<Args...>(fact, args...));
  }
  const std::string& path() const { return lines_.path(); }

 private:
  [[noreturn]] LOCKSTEP_COLD_DECL void refuse_with(const CsvColumn& column,
                                                   std::string_view fact) const;
  /// Index, from 0, of the column that `name` identifies.
  LOCKSTEP_DECL std::size_t column_index(const std::string& name) const;

  bool has_header() const { return options_.header.value_or(true); }

  /// Refuses a first line of numbers only, or with a number such as 5.1 that is not a plain integer,
  /// unless `.header` is set.
  LOCKSTEP_COLD_DECL void check_header() const;

  /// Chooses target and features from the options.
  LOCKSTEP_DECL void choose_columns();

  /// Whether a column is absent from the file and not selected, such as the original target of
  /// adapted options.
  LOCKSTEP_DECL bool is_left_out(const std::string& name) const;

  /// Makes a column a text column of this kind, with its vocabulary if the options have one.
  LOCKSTEP_DECL void set_words(const std::string& name, CsvColumn::Kind kind);

  const CsvOptions& options_;
  CsvFields lines_;
  std::vector<std::string_view> fields_;
  std::vector<std::string> names_;  // of all columns; without a header, the first line's fields
  std::vector<CsvColumn> features_;
  CsvColumn target_;
  bool at_first_line_ = true;
};

}  // namespace detail

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/data/sources/csv_table.ipp"
#endif
