#pragma once

#include "lockstep/data/sources/csv_fields.hpp"

#include <algorithm>
#include <cstdint>

#include "lockstep/core/format_text.hpp"
#include "lockstep/files/byte_reader.hpp"

namespace lockstep::detail {

CsvFields::CsvFields(std::string_view text, const std::string& path, char delimiter)
    : text_(text), path_(path), delimiter_(delimiter) {
  if (text_.starts_with("\xff\xfe") || text_.starts_with("\xfe\xff"))
    throw DataError(path_, "is UTF-16 text; save it as UTF-8");
  if (text_.starts_with("PK\3\4"))
    throw DataError(path_,
                    "is a zip archive, as .xlsx files are; extract it, or export the table as CSV");
  if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;  // byte order mark
}

bool CsvFields::next_line(std::vector<std::string_view>& fields) {
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

void CsvFields::refuse(std::size_t line, std::size_t column, std::string_view name,
                       std::string_view fact) const {
  throw DataError(path_, "line {}, column {}{}{}{}: {}", line, column, name.empty() ? "" : " (",
                  name.empty() ? "" : shown_name(name), name.empty() ? "" : ")", fact);
}

void CsvFields::end_line() {
  if (text_[at_] == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') ++at_;
  ++at_;
  ++next_number_;
}

void CsvFields::skip_blanks() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t') &&
         text_[at_] != delimiter_)
    ++at_;
}

bool CsvFields::at_end_of_field() const {
  return at_ == text_.size() || text_[at_] == delimiter_ || text_[at_] == '\n' ||
         text_[at_] == '\r';
}

std::string_view CsvFields::field(std::size_t column) {
  const std::size_t begin = at_;
  skip_blanks();
  if (at_ < text_.size() && text_[at_] == '"') return quoted(column);
  while (!at_end_of_field()) {
    if (text_[at_] == '"')
      refuse(next_number_, column, {},
             "a quote inside an unquoted field; quote the whole field and double the quotes in it");
    ++at_;
  }
  return text_.substr(begin, at_ - begin);
}

std::string_view CsvFields::quoted(std::size_t column) {
  const std::size_t line = next_number_, begin = ++at_;
  bool doubled = false;
  for (;; ++at_) {
    if (at_ == text_.size())
      refuse(line, column, {}, "a quoted field is not terminated; close the quote");
    if (text_[at_] == '\n') ++next_number_;
    if (text_[at_] != '"') continue;
    if (at_ + 1 == text_.size() || text_[at_ + 1] != '"') break;
    doubled = true;
    ++at_;
  }
  const std::string_view inside = text_.substr(begin, at_ - begin);
  ++at_;
  skip_blanks();
  if (!at_end_of_field()) {
    if (csv_delimiters.find(text_[at_]) != std::string_view::npos)
      refuse(next_number_, column, {},
             format_text("{} after the closing quote, but .delimiter is {}; set .delimiter to the "
                         "character that separates the columns",
                         shown_name(text_.substr(at_, 1)), shown_name({&delimiter_, 1})));
    refuse(next_number_, column, {},
           "text after the closing quote; double the quotes inside a quoted field");
  }
  if (!doubled) return inside;
  unquoted_.push_back(std::make_unique<std::string>());
  std::string& plain = *unquoted_.back();
  for (std::size_t i = 0; i < inside.size(); ++i) {
    plain += inside[i];
    if (inside[i] == '"') ++i;
  }
  return plain;
}

bool csv_is_below_one(std::string_view field) {
  const std::size_t end = std::min(field.find_first_of("eE"), field.size());
  std::int64_t exponent = 0;
  if (end < field.size()) {
    std::string_view digits = field.substr(end + 1);
    const bool negative = digits.starts_with('-');
    digits.remove_prefix(std::min(digits.find_first_of("0123456789"), digits.size()));
    if (std::from_chars(digits.data(), digits.data() + digits.size(), exponent).ec != std::errc{})
      return negative;  // the exponent outweighs any number of digits
    if (negative) exponent = -exponent;
  }
  const std::size_t first = field.find_first_of("123456789");
  if (first >= end) return true;  // zero
  const std::size_t point = std::min(field.find('.'), end);
  const auto places = static_cast<std::int64_t>(point) - static_cast<std::int64_t>(first);
  // Less than 1 exactly if the decimal exponent of the leading digit is negative.
  return (places > 0 ? places - 1 : places) + exponent < 0;
}

std::optional<char> csv_delimiter_in(std::string_view line, char besides) {
  std::optional<char> found;
  std::ptrdiff_t most = 0;
  for (const char candidate : csv_delimiters) {
    const auto count = std::count(line.begin(), line.end(), candidate);
    if (candidate == besides || count <= most) continue;
    found = candidate;
    most = count;
  }
  return found;
}

bool csv_is_other_integer(std::string_view field, double value) {
  std::string_view digits = field.substr(field.starts_with('-') || field.starts_with('+') ? 1 : 0);
  if (digits.find_first_not_of("0123456789") != digits.npos) return false;
  digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size() - 1));
  return digits != format_text("{:.0f}", std::abs(value));
}

std::string_view csv_trimmed(std::string_view field) {
  while (!field.empty() && (field.front() == ' ' || field.front() == '\t')) field.remove_prefix(1);
  while (!field.empty() && (field.back() == ' ' || field.back() == '\t')) field.remove_suffix(1);
  return field;
}

}  // namespace lockstep::detail
