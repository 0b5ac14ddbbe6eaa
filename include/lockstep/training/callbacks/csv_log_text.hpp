/// \file
/// The text of a CSV log that is to be continued: its header, and where the next line goes.
/// Invariant: the result depends on the text only, so that all processes of a job get the same.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/config.hpp"

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

/// Reads a log as Python's csv module writes it, after any crash or edit: no text, a byte order
/// mark, either line end, a last line that is torn or has no end.
LOCKSTEP_COLD_DECL CsvLogText read_csv_log(std::string_view text, char separator);

/// The fields of a line without its end; quotes are removed.
LOCKSTEP_COLD_DECL std::vector<std::string> csv_log_fields(std::string_view line, char separator);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/callbacks/csv_log_text.ipp"
#endif
