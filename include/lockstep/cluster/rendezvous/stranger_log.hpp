/// \file
/// What is logged about connections that do not belong to the job. Invariant: at most one line a
/// second about each source and five in total, from a table of bounded size.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/cluster/rendezvous/clock.hpp"
#include "lockstep/cluster/shown.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::detail {

class StrangerLog {
 public:
  static constexpr std::size_t most_lines = 5;  ///< a second, about all sources

  /// The line to log, or an empty one. `fact` goes on after "a connection from 10.0.0.9 ".
  std::string line(const std::string& source, std::string_view fact, Clock::time_point now) {
    if (now - second_ >= std::chrono::seconds(1)) {
      second_ = now;
      lines_ = 0;
    }
    if (sources_.size() >= most_sources && !sources_.count(source)) forget(now);
    const auto [entry, fresh] = sources_.try_emplace(source);
    Entry& seen = entry->second;
    if (!fresh && now - seen.last < std::chrono::seconds(1)) {
      ++seen.more;
      return {};
    }
    if (lines_ >= most_lines) {
      ++left_out_;
      if (fresh) sources_.erase(entry);
      return {};
    }
    ++lines_;
    std::string result = text({"a connection from ", source, " ", fact});
    if (seen.more > 0) result += text({" (and ", seen.more, " more from there)"});
    if (left_out_ > 0)
      result +=
          text({"; ", std::exchange(left_out_, 0), " more from other places were not logged"});
    seen = {now, 0};
    return result;
  }

 private:
  static constexpr std::size_t most_sources = 256;
  struct Entry {
    Clock::time_point last{};
    std::size_t more = 0;
  };

  void forget(Clock::time_point now) {
    for (auto i = sources_.begin(); i != sources_.end();)
      i = now - i->second.last >= std::chrono::seconds(1) ? sources_.erase(i) : std::next(i);
    if (sources_.size() >= most_sources) sources_.erase(sources_.begin());
  }

  std::map<std::string, Entry> sources_;
  Clock::time_point second_{};
  std::size_t lines_ = 0, left_out_ = 0;  // since second_; since the last line
};

}  // namespace lockstep::detail
