/// \file
/// `skip` drops the first examples of a pass. Invariant: examples are selected, never changed.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/count.hpp"
#include "lockstep/data/pipe.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep {

namespace pipeline {

/// A stream without its first `count` indices.
template <IndexStream S>
class AllBut {
 public:
  AllBut(S source, std::uint64_t count) : source_(std::move(source)), count_(count) {}
  std::optional<std::uint64_t> next() {
    for (; skipped_ < count_; ++skipped_)
      if (!source_.next()) return std::nullopt;
    return source_.next();
  }
  void restart(Pass pass)
    requires Restartable<S>
  {
    source_.restart(pass);
    skipped_ = 0;
  }

 private:
  S source_;
  std::uint64_t count_;
  std::uint64_t skipped_ = 0;
};

/// `D` without the first `count` examples of each pass.
template <Dataset D>
class Skip : public Selection<D> {
 public:
  Skip(D source, std::uint64_t count) : Selection<D>(std::move(source)), count_(count) {}
  std::optional<std::uint64_t> size() const {
    const auto all = this->source().size();
    if (!all) return std::nullopt;
    return *all > count_ ? *all - count_ : 0;
  }
  auto indices(Pass pass) const {
    return AllBut<StreamOf<D>>(this->source().indices(pass), count_);
  }

 private:
  std::uint64_t count_;
};

}  // namespace pipeline

/// Drops the first `count` examples of each pass (tf.data's `skip`); a shorter pass becomes empty.
/// Put skip before shuffle.
/// \throws UsageError if `count` is negative.
/// \code
///   auto rest = train | lockstep::skip(5'000);
/// \endcode
inline auto skip(Count count) {
  const std::uint64_t n = count.checked("skip", "give the number of examples to skip, at least 0");
  return pipeline::operation_under_rescale<pipeline::Fault::shuffled>(
      [n]<class D>(D source) { return pipeline::Skip<D>(std::move(source), n); },
      [](auto found) {
        static_assert(!found.batched, LOCKSTEP_BATCHED("skip"));
        static_assert(!found.shuffled,
                      "lockstep::skip: a shuffle before skip would drop other examples in each "
                      "pass; put skip before shuffle, or use shuffle_once");
      });
}

}  // namespace lockstep
