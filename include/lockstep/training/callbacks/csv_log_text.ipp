#pragma once

#include "lockstep/training/callbacks/csv_log_text.hpp"

namespace lockstep::detail {

std::vector<std::string> csv_log_fields(std::string_view line, char separator) {
  std::vector<std::string> fields(1);
  bool is_quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') {
      if (is_quoted && i + 1 < line.size() && line[i + 1] == '"')
        fields.back() += line[i++];
      else
        is_quoted = !is_quoted;
    } else if (line[i] == separator && !is_quoted) {
      fields.emplace_back();
    } else {
      fields.back() += line[i];
    }
  }
  return fields;
}

CsvLogText read_csv_log(std::string_view text, char separator) {
  CsvLogText log;
  std::size_t begin = text.starts_with("\xef\xbb\xbf") ? 3 : 0;  // of the current line
  if (text.find_first_not_of(" \t\r\n", begin) == text.npos) return log;
  bool is_quoted = false;
  for (std::size_t i = begin; i < text.size(); ++i) {
    if (text[i] == '"') is_quoted = !is_quoted;
    if (text[i] != '\n' || is_quoted) continue;
    std::string_view line = text.substr(begin, i - begin);
    const bool has_return = line.ends_with('\r');
    if (has_return) line.remove_suffix(1);
    begin = log.end = i + 1;
    if (!log.header.empty() || line.empty()) continue;
    log.header = csv_log_fields(line, separator);
    if (!has_return) log.line_end = "\n";
  }
  std::string_view rest = text.substr(begin);
  if (rest.ends_with('\r')) rest.remove_suffix(1);
  if (rest.empty()) return log;
  const std::vector<std::string> fields = csv_log_fields(rest, separator);
  log.is_header_torn = log.header.empty();
  if (log.is_header_torn) log.header = fields;
  if (fields.size() == log.header.size() && !is_quoted) {
    log.end = begin + rest.size();
    log.missing_end = log.line_end;
  } else {
    log.torn = rest;
  }
  return log;
}

}  // namespace lockstep::detail
