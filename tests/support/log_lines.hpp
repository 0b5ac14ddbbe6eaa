/// \file
/// What the library warns of while a test runs.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/log.hpp"

namespace testing {

/// While it lives, warnings and errors go here, and no line goes elsewhere.
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
