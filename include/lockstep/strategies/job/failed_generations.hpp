/// \file
/// The end of an elastic job whose members live but cannot exchange data. Pure functions and state.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::detail {

/// How a generation is lost that another member has ended, if this process hears of it before the
/// verdict: the rank in such a loss is not the one to blame.
inline constexpr const char* ended_by_another =
    "or another worker has ended this generation of the elastic job";

/// Counts generations of the same members that ended before they trained. A member that has died
/// is not in the next generation, so such a failure means that a connection is cut between two
/// members that both reach the others:
///
///     failed, failed again --the rank to blame--> leaves
///              '------------the others----------> form the next generation without it
///     failed for the eighth time, or for the third and after `limit`: all give up
///
/// The others are more patient, since the rank to blame may learn of a failure only from them, and
/// then without the cause.
class FailedGenerations {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class Action { go_on, leave, give_up };

  explicit FailedGenerations(std::chrono::milliseconds limit) : limit_(limit) {}

  /// Takes note of the rank that a loss names.
  [[gnu::cold]] void blame(const PeerLost& loss) {
    if (loss.how() != ended_by_another) blamed_ = loss.rank();
  }
  /// A generation has ended, in which this process had the rank `own`.
  [[gnu::cold]] Action ended(std::size_t own, bool has_trained, Time now) {
    constexpr std::size_t patience = 2, most = 8;
    const auto blamed = std::exchange(blamed_, std::nullopt);
    if (has_trained) count_ = 0;
    if (has_trained || !blamed) return Action::go_on;  // without blame another member has ended it
    if (count_++ == 0) first_ = now;
    if (count_ >= patience && blamed == own) return Action::leave;
    const bool is_late = count_ > patience && now - first_ >= limit_;
    return count_ >= most || is_late ? Action::give_up : Action::go_on;
  }
  /// The next one begins. `same`: it has the same members.
  [[gnu::cold]] void begin(bool same) {
    if (!same) count_ = 0;
  }

 private:
  std::chrono::milliseconds limit_;
  std::optional<std::size_t> blamed_{};
  std::size_t count_ = 0;
  Time first_{};
};

}  // namespace lockstep::detail
