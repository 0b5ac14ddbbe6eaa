/// \file
/// Rate-limited log lines about connections that do not belong to the job. Invariant: at most one
/// line per second for each source and five in total; the table of sources is bounded.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/cluster/network/clock.hpp"
#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

/// Counts what it does not log, and adds the counts to the next line.
class StrangerLog {
 public:
  static constexpr std::size_t max_lines = 5;  ///< per second, for all sources

  /// The line to log; empty: do not log. `fact` completes "a connection from 10.0.0.9 ".
  [[gnu::cold]] std::string line(const std::string& source, std::string_view fact,
                                 Clock::time_point now) {
    if (now - second_ >= std::chrono::seconds(1)) {
      second_ = now;
      lines_ = 0;
    }
    if (sources_.size() >= max_sources && !sources_.count(source)) forget(now);
    const auto [entry, fresh] = sources_.try_emplace(source);
    Entry& seen = entry->second;
    if (!fresh && now - seen.last < std::chrono::seconds(1)) {
      ++seen.more;
      return {};
    }
    if (lines_ >= max_lines) {
      ++left_out_;
      // A source without a line has nothing to remember.
      if (fresh) sources_.erase(entry);
      return {};
    }
    ++lines_;
    std::string result = format_text("a connection from {} {}", source, fact);
    if (seen.more > 0) result += format_text(" (and {} more from there)", seen.more);
    if (left_out_ > 0)
      result +=
          format_text("; {} more from other sources were not logged", std::exchange(left_out_, 0));
    seen = {now, 0};
    return result;
  }

 private:
  static constexpr std::size_t max_sources = 256;
  /// A source, its last line, and how many lines were suppressed since.
  struct Entry {
    Clock::time_point last{};
    std::size_t more = 0;
  };

  /// Removes the sources that may log again; if there are none, an arbitrary one.
  [[gnu::cold]] void forget(Clock::time_point now) {
    for (auto i = sources_.begin(); i != sources_.end();)
      i = now - i->second.last >= std::chrono::seconds(1) ? sources_.erase(i) : std::next(i);
    if (sources_.size() >= max_sources) sources_.erase(sources_.begin());
  }

  std::map<std::string, Entry> sources_;
  Clock::time_point second_{};
  std::size_t lines_ = 0, left_out_ = 0;  // logged since second_; dropped since the last line
};

}  // namespace lockstep::detail
