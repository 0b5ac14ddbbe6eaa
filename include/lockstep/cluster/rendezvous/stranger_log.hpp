/// \file
/// What is logged about connections that do not belong to the job. Invariant: at most one line a
/// second about each source and five in total, from a table of bounded size.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "lockstep/cluster/rendezvous/clock.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

class StrangerLog {
 public:
  static constexpr std::size_t max_lines = 5;  ///< a second, about all sources

  /// The line to log, or an empty one. `fact` goes on after "a connection from 10.0.0.9 ".
  LOCKSTEP_COLD_DECL std::string line(const std::string& source, std::string_view fact,
                                      Clock::time_point now);

 private:
  static constexpr std::size_t max_sources = 256;
  struct Entry {
    Clock::time_point last{};
    std::size_t more = 0;
  };

  LOCKSTEP_COLD_DECL void forget(Clock::time_point now);

  std::map<std::string, Entry> sources_;
  Clock::time_point second_{};
  std::size_t lines_ = 0, left_out_ = 0;  // since second_; since the last line
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/stranger_log.ipp"
#endif
