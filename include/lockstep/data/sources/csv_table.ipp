#pragma once

#include "lockstep/data/sources/csv_table.hpp"

#include <algorithm>
#include <utility>

#include "lockstep/core/add_item.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/files/byte_reader.hpp"

namespace lockstep::detail {

CsvTable::CsvTable(std::string_view text, const std::string& path, const CsvOptions& options)
    : options_(options), lines_(text, path, options.delimiter) {
  if (std::string_view("\"\r\n+-.").find(options.delimiter) != std::string_view::npos ||
      (options.delimiter >= '0' && options.delimiter <= '9'))
    throw UsageError(
        "read_csv: the delimiter {} also occurs in numbers, quotes or line ends; choose another "
        "one",
        shown_name({&options.delimiter, 1}));
  if (!options.columns.empty() && !options.drop.empty())
    throw UsageError("read_csv: both .columns and .drop are given; remove one of them");
  if (!lines_.next_line(fields_)) throw DataError(path, "has no lines; it needs at least one");
  for (const std::string_view field : fields_) names_.emplace_back(csv_trimmed(field));
  if (names_.size() < 2) {
    const auto other = csv_delimiter_in(names_[0], options.delimiter);
    throw DataError(
        path, "has one column, but an example needs features and a target; {} the delimiter {}{}",
        other ? "replace" : "check", shown_name({&options.delimiter, 1}),
        other ? format_text(" by {}", shown_name({&*other, 1})) : "");
  }
  check_header();
  choose_columns();
  for (const std::string& name : options.one_hot) set_words(name, CsvColumn::Kind::one_hot);
  for (const std::string& name : options.word_index) set_words(name, CsvColumn::Kind::word_index);
  for (const auto& [name, words] : options.vocabulary) {
    const auto has = [&name = name](const std::vector<std::string>& list) {
      return std::find(list.begin(), list.end(), name) != list.end();
    };
    if (!has(options.one_hot) && !has(options.word_index))
      throw UsageError(
          "read_csv: .vocabulary has {}, which is neither in .one_hot nor in .word_index; list it "
          "in one of them",
          shown_name(name));
  }
}

bool CsvTable::next() {
  const bool is_first_line = std::exchange(at_first_line_, false);
  if ((!is_first_line || has_header()) && !lines_.next_line(fields_)) return false;
  if (fields_.size() != names_.size())
    lines_.refuse(
        lines_.line(), std::min(fields_.size(), names_.size()) + 1, {},
        format_text(
            "the line has {} columns, but the first has {}; give every line the same number",
            fields_.size(), names_.size()));
  return true;
}

std::string_view CsvTable::field(const CsvColumn& column) const {
  const std::string_view found = csv_trimmed(fields_[column.index]);
  const auto& words = options_.missing_words;
  if (!found.empty() && std::find(words.begin(), words.end(), found) == words.end()) return found;
  if (!options_.missing)
    refuse(column, "a value is missing{}; set .missing to the value to use instead",
           found.empty() ? "" : format_text(": {} is in .missing_words", shown_name(found)));
  return {};
}

void CsvTable::refuse_with(const CsvColumn& column, std::string_view fact) const {
  lines_.refuse(lines_.line(), column.index + 1,
                has_header() ? std::string_view(names_[column.index]) : std::string_view(), fact);
}

std::size_t CsvTable::column_index(const std::string& name) const {
  if (!has_header()) {
    const auto index = csv_number<std::uint32_t>(name);
    if (!index || *index >= names_.size())
      throw DataError(path(),
                      "has {} columns and no header; name a column by its number, 0 to {}, not {}",
                      names_.size(), names_.size() - 1, shown_name(name));
    return *index;
  }
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end()) {
    std::string has;
    for (std::size_t i = 0; i < names_.size() && i < 20; ++i)
      add_item(has, ", ", shown_name(names_[i]));
    throw DataError(path(), "has no column {}; its columns are {}{}", shown_name(name), has,
                    names_.size() > 20 ? ", ..." : "");
  }
  if (std::find(found + 1, names_.end(), name) != names_.end())
    throw DataError(path(), "has two columns named {}; rename one of them", shown_name(name));
  return static_cast<std::size_t>(found - names_.begin());
}

void CsvTable::check_header() const {
  if (options_.header) return;
  std::size_t numbers = 0, empty = 0;
  std::string_view real;  // the first number that is not a plain integer, which names no column
  for (const std::string_view name : names_) {
    if (name.empty()) ++empty;
    if (!csv_number<double>(name)) continue;
    ++numbers;
    if (real.empty() && name.find_first_of("0123456789") != name.npos &&
        name.find_first_not_of("0123456789") != name.npos)
      real = name;
  }
  const bool has_only_numbers = numbers > 0 && numbers + empty == names_.size();
  if (has_only_numbers || !real.empty())
    throw DataError(
        path(),
        "line {}: the first line has {}; set .header = false if it is an example, or "
        ".header = true if it names the columns",
        lines_.line(),
        has_only_numbers ? "only numbers" : format_text("the number {}", shown_name(real)));
}

void CsvTable::choose_columns() {
  const auto name_of = [&](std::size_t index) {
    return has_header() ? names_[index] : std::to_string(index);
  };
  target_.index = options_.target.empty() ? names_.size() - 1 : column_index(options_.target);
  target_.name = name_of(target_.index);
  std::vector<bool> is_used(names_.size());
  const auto claim = [&](const std::string& name, const char* list) {
    const std::size_t index = column_index(name);
    if (index == target_.index || is_used[index])
      throw UsageError("read_csv: {} has {}{}; remove it", list, shown_name(name),
                       index == target_.index ? ", which is the target" : " twice");
    is_used[index] = true;
    return index;
  };
  for (const std::string& name : options_.columns)
    features_.push_back({claim(name, ".columns"), name});
  for (const std::string& name : options_.drop) claim(name, ".drop");
  if (options_.columns.empty())
    for (std::size_t index = 0; index < names_.size(); ++index) {
      if (index == target_.index || is_used[index]) continue;
      if (has_header() && names_[index].empty())
        throw DataError(path(),
                        "column {} has no name, as the row numbers that pandas writes; leave it "
                        "out with .drop = {{\"\"}}, or name it",
                        index + 1);
      features_.push_back({index, name_of(index)});
    }
  if (features_.empty())
    throw DataError(path(), "has no columns left for the features; drop fewer");
}

bool CsvTable::is_left_out(const std::string& name) const {
  return has_header() && !options_.columns.empty() && options_.vocabulary.contains(name) &&
         std::find(names_.begin(), names_.end(), name) == names_.end();
}

void CsvTable::set_words(const std::string& name, CsvColumn::Kind kind) {
  if (is_left_out(name)) return;  // all features and the target are present
  const std::size_t index = column_index(name);
  const auto found = std::find_if(features_.begin(), features_.end(),
                                  [&](const CsvColumn& c) { return c.index == index; });
  if (found == features_.end() && index != target_.index) return;  // not a selected column
  CsvColumn& column = index == target_.index ? target_ : *found;
  if (column.kind != CsvColumn::Kind::number)
    throw UsageError(
        "read_csv: column {} is listed more than once in .one_hot and .word_index; list it once",
        shown_name(name));
  column.kind = kind;
  column.name = name;
  const auto words = options_.vocabulary.find(name);
  if (words == options_.vocabulary.end()) return;
  for (const std::string& word : words->second)
    if (!column.words.emplace(word, column.words.size()).second)
      throw UsageError("read_csv: the vocabulary of {} has {} twice; remove one", shown_name(name),
                       shown_name(word));
}

}  // namespace lockstep::detail
