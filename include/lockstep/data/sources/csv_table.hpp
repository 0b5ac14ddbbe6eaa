/// \file
/// Which columns of a CSV file are read, and its lines. Invariants: a column that the options name
/// exists once, or the file is refused; each line has as many fields as the first.
///
/// Not part of <lockstep/lockstep.hpp>.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/data/sources/csv_fields.hpp"
#include "lockstep/files/byte_reader.hpp"

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
  std::size_t place = 0;
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
  [[gnu::cold]] CsvTable(std::string_view text, const std::string& path, const CsvOptions& options)
      : options_(options), lines_(text, path, options.delimiter) {
    if (std::string_view("\"\r\n+-.").find(options.delimiter) != std::string_view::npos ||
        (options.delimiter >= '0' && options.delimiter <= '9'))
      throw UsageError({"read_csv: the delimiter is ", shown_name({&options.delimiter, 1}),
                        ", which stands within numbers, quotes or line ends; give another one"});
    if (!options.columns.empty() && !options.drop.empty())
      throw UsageError("read_csv: both .columns and .drop are given; leave one of them out");
    if (!lines_.next_line(fields_)) throw DataError(path, "has no line; give it at least one");
    for (const std::string_view field : fields_) names_.emplace_back(csv_trimmed(field));
    if (names_.size() < 2)
      throw DataError(path, {"has one column, where an example has features and a target; check "
                             "the delimiter ",
                             shown_name({&options.delimiter, 1})});
    choose_columns();
    for (const std::string& name : options.one_hot) set_words(name, CsvColumn::Kind::one_hot);
    for (const std::string& name : options.word_index) set_words(name, CsvColumn::Kind::word_index);
    for (const auto& [name, words] : options.vocabulary) {
      const auto has = [&name = name](const std::vector<std::string>& list) {
        return std::find(list.begin(), list.end(), name) != list.end();
      };
      if (!has(options.one_hot) && !has(options.word_index))
        throw UsageError({"read_csv: .vocabulary has ", shown_name(name),
                          ", which is neither in .one_hot nor in .word_index; list it there"});
    }
  }

  const std::vector<CsvColumn>& features() const { return features_; }
  const CsvColumn& target() const { return target_; }

  /// The next line of data; false at the end.
  /// \throws DataError if it has another number of columns than the first.
  bool next() {
    const bool is_first_line = std::exchange(at_first_line_, false);
    if ((!is_first_line || options_.header) && !lines_.next_line(fields_)) return false;
    if (fields_.size() != names_.size())
      lines_.refuse(lines_.line(), std::min(fields_.size(), names_.size()) + 1, {},
                    {"the line has ", fields_.size(), " columns, the first has ", names_.size(),
                     "; give each line the same number"});
    return true;
  }
  /// The field of a column; empty if it is missing, which `.missing` allows.
  std::string_view field(const CsvColumn& column) const {
    const std::string_view found = csv_trimmed(fields_[column.place]);
    if (found.empty() && !options_.missing)
      refuse(column, {"a value is missing; give .missing a value for it"});
    return found;
  }
  [[noreturn, gnu::cold]] void refuse(const CsvColumn& column,
                                      std::initializer_list<Piece> fact) const {
    lines_.refuse(lines_.line(), column.place + 1,
                  options_.header ? std::string_view(names_[column.place]) : std::string_view(),
                  fact);
  }
  const std::string& path() const { return lines_.path(); }

 private:
  /// Number, from 0, of the column that `name` gives.
  std::size_t place_of(const std::string& name) const {
    if (!options_.header) {
      const auto place = csv_number<std::uint32_t>(name);
      if (!place || *place >= names_.size())
        throw DataError(path(), {"has ", names_.size(),
                                 " columns and no header, so a column is a number from 0 to ",
                                 names_.size() - 1, ", not ", shown_name(name)});
      return *place;
    }
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) {
      std::string has;
      for (std::size_t i = 0; i < names_.size() && i < 20; ++i)
        add_item(has, ", ", {shown_name(names_[i])});
      throw DataError(path(), {"has no column ", shown_name(name), "; its columns are ", has,
                               names_.size() > 20 ? ", ..." : ""});
    }
    if (std::find(found + 1, names_.end(), name) != names_.end())
      throw DataError(path(), {"has two columns ", shown_name(name), "; rename one of them"});
    return static_cast<std::size_t>(found - names_.begin());
  }

  void choose_columns() {
    const auto name_of = [&](std::size_t place) {
      return options_.header ? names_[place] : std::to_string(place);
    };
    target_.place = options_.target.empty() ? names_.size() - 1 : place_of(options_.target);
    target_.name = name_of(target_.place);
    std::vector<bool> is_taken(names_.size());
    const auto take = [&](const std::string& name, const char* list) {
      const std::size_t place = place_of(name);
      if (place == target_.place || is_taken[place])
        throw UsageError({"read_csv: ", list, " has ", shown_name(name),
                          place == target_.place ? ", which is the target" : " twice",
                          "; leave it out"});
      is_taken[place] = true;
      return place;
    };
    for (const std::string& name : options_.columns)
      features_.push_back({take(name, ".columns"), name});
    for (const std::string& name : options_.drop) take(name, ".drop");
    if (options_.columns.empty())
      for (std::size_t place = 0; place < names_.size(); ++place)
        if (place != target_.place && !is_taken[place])
          features_.push_back({place, name_of(place)});
    if (features_.empty())
      throw DataError(path(), "has no column left for the features; drop fewer");
  }

  /// A column that is missing from the file and is not read, as the target that adapted options
  /// had.
  bool is_left_out(const std::string& name) const {
    return options_.header && !options_.columns.empty() && options_.vocabulary.contains(name) &&
           std::find(names_.begin(), names_.end(), name) == names_.end();
  }

  void set_words(const std::string& name, CsvColumn::Kind kind) {
    if (is_left_out(name)) return;  // all features and the target were found
    const std::size_t place = place_of(name);
    const auto found = std::find_if(features_.begin(), features_.end(),
                                    [&](const CsvColumn& c) { return c.place == place; });
    if (found == features_.end() && place != target_.place) return;  // a column that is not read
    CsvColumn& column = place == target_.place ? target_ : *found;
    if (column.kind != CsvColumn::Kind::number)
      throw UsageError({"read_csv: the column ", shown_name(name),
                        " is in .one_hot or .word_index twice; leave one out"});
    column.kind = kind;
    column.name = name;
    const auto words = options_.vocabulary.find(name);
    if (words == options_.vocabulary.end()) return;
    for (const std::string& word : words->second)
      if (!column.words.emplace(word, column.words.size()).second)
        throw UsageError({"read_csv: the vocabulary of ", shown_name(name), " has ",
                          shown_name(word), " twice; leave one out"});
  }

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
