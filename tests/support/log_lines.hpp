/// \file
/// Captures the library's warnings during a test.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/log.hpp"

namespace testing {

/// Scope that collects warnings and errors in `lines` and suppresses all other output of the log.
class LogLines {
 public:
  LogLines()
      : before_(lockstep::set_log([this](lockstep::LogLevel level, std::string_view line) {
          if (level != lockstep::LogLevel::info) lines.emplace_back(line);
        })) {}
  ~LogLines() { lockstep::set_log(std::move(before_)); }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;

  std::vector<std::string> lines;

 private:
  lockstep::LogSink before_;
};

}  // namespace testing
