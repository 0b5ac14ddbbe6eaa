/// \file
/// What is said about connections that do not belong to the job. Invariant: at most one line a
/// second about each source, from a table of bounded size.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "lockstep/cluster/rendezvous/clock.hpp"
#include "lockstep/cluster/shown.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::detail {

class StrangerLog {
 public:
  /// The line to log, or an empty one. `fact` goes on after "a connection from 10.0.0.9 ".
  std::string line(const std::string& source, std::string_view fact, Clock::time_point now) {
    if (sources_.size() >= most_sources && !sources_.count(source)) forget(now);
    const auto [entry, fresh] = sources_.try_emplace(source);
    Entry& seen = entry->second;
    if (!fresh && now - seen.last < std::chrono::seconds(1)) {
      ++seen.more;
      return {};
    }
    std::string result = text({"a connection from ", source, " ", fact});
    if (seen.more > 0) result += text({" (and ", seen.more, " more from there)"});
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
};

}  // namespace lockstep::detail
