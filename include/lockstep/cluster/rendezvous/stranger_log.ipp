#pragma once

#include "lockstep/cluster/rendezvous/stranger_log.hpp"

#include <utility>

#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

std::string StrangerLog::line(const std::string& source, std::string_view fact,
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

void StrangerLog::forget(Clock::time_point now) {
  for (auto i = sources_.begin(); i != sources_.end();)
    i = now - i->second.last >= std::chrono::seconds(1) ? sources_.erase(i) : std::next(i);
  if (sources_.size() >= max_sources) sources_.erase(sources_.begin());
}

}  // namespace lockstep::detail
