/// \file
/// `repeat` runs through its source several times in one pass. Invariant: the first round is the
/// source's own pass; each later round is a pass with its own seed, so a shuffle before repeat
/// draws a new order for each round.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/count.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/data/pipe.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep {

namespace pipeline {

/// The stream of repeated passes of `D`. Ends after `times` rounds, or after a round without
/// examples.
template <Dataset D>
class Rounds {
 public:
  Rounds(D source, std::uint64_t times, Pass pass)
      : source_(std::move(source)), times_(times), pass_(pass), stream_(source_.indices(pass)) {}
  std::optional<std::uint64_t> next() {
    for (;;) {
      if (const auto index = stream_.next()) {
        found_ = true;
        return index;
      }
      if (!found_ || round_ + 1 >= times_) return std::nullopt;
      ++round_;
      found_ = false;
      pipeline::restart(source_, stream_, of_round(round_));
    }
  }
  void restart(Pass pass) {
    pass_ = pass;
    round_ = 0;
    found_ = false;
    pipeline::restart(source_, stream_, pass);
  }

 private:
  /// The pass of a round after the first.
  Pass of_round(std::uint64_t round) const {
    return {mix(mix(pass_.seed, hash_name("repeat")), round), pass_.number};
  }

  D source_;
  std::uint64_t times_;
  Pass pass_;
  StreamOf<D> stream_;
  std::uint64_t round_ = 0;
  bool found_ = false;  // whether this round has had an example
};

/// `D` repeated within each pass.
template <Dataset D>
class Repeat : public Selection<D> {
 public:
  static constexpr bool reordered = true;
  static constexpr std::uint64_t endless = std::numeric_limits<std::uint64_t>::max();

  /// \throws UsageError if `times` is 0 or the number of examples overflows 64 bits.
  Repeat(D source, std::uint64_t times) : Selection<D>(std::move(source)), times_(times) {
    if (times == 0)
      throw UsageError("repeat(0): zero rounds; give at least 1, or no argument to repeat forever");
    const auto once = this->source().size();
    if (times != endless && once && *once > 0 && times > endless / *once)
      throw UsageError(
          "repeat({}) of {} examples: the number of examples overflows 64 bits; omit the argument "
          "to repeat forever",
          times, *once);
  }
  std::optional<std::uint64_t> size() const {
    const auto once = this->source().size();
    if (once && *once == 0) return 0;
    if (!once || times_ == endless) return std::nullopt;
    return *once * times_;
  }
  auto indices(Pass pass) const { return Rounds<D>(this->source(), times_, pass); }
  std::uint64_t times() const { return times_; }
  const D& upstream() const { return this->source(); }

 private:
  std::uint64_t times_;
};

/// The operation `repeat(times)`.
constexpr auto repeat_times(std::uint64_t times) {
  return operation([times]<class D>(D source) { return Repeat<D>(std::move(source), times); },
                   [](auto found) { static_assert(!found.batched, LOCKSTEP_BATCHED("repeat")); });
}
using RepeatTimes = decltype(repeat_times(0));

/// The type of `lockstep::repeat` and of its result, so that a program may choose between the two.
struct RepeatOperation : RepeatTimes {
  constexpr RepeatOperation operator()() const { return *this; }
  constexpr RepeatOperation operator()(Count n) const {
    return {repeat_times(n.checked("repeat", "give at least 1, or no argument to repeat forever"))};
  }
};

}  // namespace pipeline

/// `repeat(n)` runs n times through the data in each pass; `repeat` or `repeat()` runs forever, and
/// `fit` then needs `steps_per_epoch`. A shuffle before repeat draws a new order for each round.
/// \throws UsageError if n is negative, or, when applied to a source, 0.
/// \code
///   auto train = images | lockstep::shuffle(60'000) | lockstep::repeat | lockstep::batch(64);
/// \endcode
inline constexpr pipeline::RepeatOperation repeat{
    pipeline::repeat_times(std::numeric_limits<std::uint64_t>::max())};

}  // namespace lockstep
