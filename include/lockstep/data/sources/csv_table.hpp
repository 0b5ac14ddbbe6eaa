/// \file
/// Which columns of a CSV file are read, and its lines. Invariants: a column that the options name
/// exists once, or the file is refused; each line has as many fields as the first.
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
#include "lockstep/core/fmt_core.hpp"
#include "lockstep/data/sources/csv_fields.hpp"

namespace lockstep {

/// How a CSV file is read. A column is given by its name, or without a header by its number from 0
/// ("2").
struct CsvOptions {
  char delimiter = ',';
  bool header = true;                  ///< the first line names the columns
  std::string target{};                ///< the target's column; empty: the last
  std::optional<double> missing{};     ///< the value of an empty field; nothing: it is an error
  std::vector<std::string> columns{};  ///< the features, in this order; empty: all but the target
  std::vector<std::string> drop{};     ///< columns that are left out
  /// Columns of words, each of which becomes as many numbers as the vocabulary has words: 1 for the
  /// field's word, 0 for the others.
  std::vector<std::string> one_hot{};
  /// Columns of words, each of which becomes the number of its word in the vocabulary, from 0.
  std::vector<std::string> word_index{};
  /// The words of a column; without an entry, those of the file, sorted by their bytes.
  std::map<std::string, std::vector<std::string>> vocabulary{};
  bool unknown_words = false;  ///< a word outside of the vocabulary is all 0 or, as an index, the
                               ///< number of words; false: it is an error
  bool check_finite = false;   ///< nan and inf are errors
};

namespace detail {

/// A column that is read.
struct CsvColumn {
  enum class Kind : std::uint8_t { number, one_hot, word_index };
  std::size_t index = 0;
  std::string name;  ///< as the options call it
  Kind kind = Kind::number;
  std::map<std::string, std::size_t, std::less<>> words{};  ///< each with its number

  std::size_t width() const { return kind == Kind::one_hot ? words.size() : 1; }
};

/// The lines of a table, and which columns are read.
class CsvTable {
 public:
  /// \throws DataError if the options do not fit the file; UsageError if they contradict each
  /// other.
  LOCKSTEP_COLD_DECL CsvTable(std::string_view text, const std::string& path,
                              const CsvOptions& options);

  const std::vector<CsvColumn>& features() const { return features_; }
  const CsvColumn& target() const { return target_; }

  /// The next line of data; false at the end.
  /// \throws DataError if it has another number of columns than the first.
  LOCKSTEP_DECL bool next();
  /// The field of a column; empty if it is missing, which `.missing` allows.
  LOCKSTEP_DECL std::string_view field(const CsvColumn& column) const;
  template <class... Args>
  [[noreturn, gnu::cold]] void refuse(const CsvColumn& column, fmt::format_string<Args...> fact,
                                      Args&&... args) const {
    refuse_with(column, fmt::vformat(fact, fmt::make_format_args(args...)));
  }
  const std::string& path() const { return lines_.path(); }

 private:
  [[noreturn]] LOCKSTEP_COLD_DECL void refuse_with(const CsvColumn& column,
                                                   std::string_view fact) const;
  /// Number, from 0, of the column that `name` gives.
  LOCKSTEP_DECL std::size_t column_index(const std::string& name) const;

  LOCKSTEP_DECL void choose_columns();

  /// A column that is missing from the file and is not read, as the target that adapted options
  /// had.
  LOCKSTEP_DECL bool is_left_out(const std::string& name) const;

  LOCKSTEP_DECL void set_words(const std::string& name, CsvColumn::Kind kind);

  const CsvOptions& options_;
  CsvFields lines_;
  std::vector<std::string_view> fields_;
  std::vector<std::string> names_;  // of all columns; without a header the first line's fields
  std::vector<CsvColumn> features_;
  CsvColumn target_;
  bool at_first_line_ = true;
};

}  // namespace detail

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/data/sources/csv_table.ipp"
#endif
