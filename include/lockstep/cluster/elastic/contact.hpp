/// \file
/// Another process, as its last messages describe it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <variant>

#include "lockstep/cluster/elastic/elastic_messages.hpp"
#include "lockstep/cluster/network/clock.hpp"

namespace lockstep::detail {

/// A newcomer is proposed while it has repeated its request within this time.
inline constexpr milliseconds newcomer_age{1000};

/// The process that was last heard at an index, or the one of a rank.
struct Contact {
  using Time = Clock::time_point;

  std::uint64_t incarnation = 0, serial = 0;
  bool known = false, gone = false;
  Time heard{}, first_heard{};
  Notice notice{};

  /// Takes note of a letter. False if a later one has overtaken it.
  bool note(const Letter& letter, Time now) {
    const bool in_order = std::holds_alternative<Notice>(letter.message) ||
                          std::holds_alternative<Form>(letter.message);
    if (incarnation != letter.from.incarnation) *this = {.incarnation = letter.from.incarnation};
    if (in_order && letter.serial <= serial) return false;
    serial = std::max(serial, letter.serial);
    heard = now;
    if (!known) first_heard = now;
    gone = false;
    if (const auto* const message = std::get_if<Notice>(&letter.message)) {
      known = true;
      notice = *message;
    }
    return true;
  }
  /// Whether it waits for a job.
  bool is_fresh(Time now) const {
    return known && notice.standing == Standing::fresh && now - heard < newcomer_age;
  }
  /// Does not count `pause`, in which this process did not listen, as silence.
  void excuse(Clock::duration pause, Time now) { heard = std::min(now, heard + pause); }
};

}  // namespace lockstep::detail
