/// \file
/// The text of a CSV log that is to be continued: its header, and where the next line goes.
/// Invariant: the result depends on the text only, so that all processes of a job get the same.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::detail {

/// An existing log, and how it is completed before lines are appended:
///
///     text[0, end)   stays; a torn line after it is removed
///     missing_end    is appended: the end of a last line that has all its fields but no end
struct CsvLogText {
  std::vector<std::string> header;  ///< fields of the first line; empty: there is none
  std::size_t end = 0;              ///< bytes to keep
  std::string missing_end;          ///< a line end, or empty
  std::string line_end = "\r\n";    ///< of the header
  std::string torn;                 ///< the removed text
  bool is_header_torn = false;      ///< the header is the only line and has no end

  std::size_t completed() const { return end + missing_end.size(); }
};

/// The fields of a line without its end; quotes are removed.
[[gnu::cold]] inline std::vector<std::string> csv_log_fields(std::string_view line,
                                                             char separator) {
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

/// Reads a log as Python's csv module writes it, after any crash or edit: no text, a byte order
/// mark, either line end, a last line that is torn or has no end.
[[gnu::cold]] inline CsvLogText read_csv_log(std::string_view text, char separator) {
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
