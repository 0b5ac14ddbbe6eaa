/// \file
/// Rate-limited log lines about connections that do not belong to the job. Invariant: at most one
/// line per second for each source and five in total; the table of sources is bounded.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "lockstep/cluster/rendezvous/clock.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// Counts what it does not log, and adds the counts to the next line.
class StrangerLog {
 public:
  static constexpr std::size_t max_lines = 5;  ///< per second, for all sources

  /// The line to log; empty: do not log. `fact` completes "a connection from 10.0.0.9 ".
  LOCKSTEP_COLD_DECL std::string line(const std::string& source, std::string_view fact,
                                      Clock::time_point now);

 private:
  static constexpr std::size_t max_sources = 256;
  /// A source, its last line, and how many lines were suppressed since.
  struct Entry {
    Clock::time_point last{};
    std::size_t more = 0;
  };

  /// Removes the sources that may log again; if there are none, an arbitrary one.
  LOCKSTEP_COLD_DECL void forget(Clock::time_point now);

  std::map<std::string, Entry> sources_;
  Clock::time_point second_{};
  std::size_t lines_ = 0, left_out_ = 0;  // logged since second_; dropped since the last line
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/stranger_log.ipp"
#endif
