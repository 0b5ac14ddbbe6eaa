/// \file
/// `shuffle` runs tf.data's shuffle buffer on indices. Invariant: the order is a pure function of
/// (seed, pass) and of the source's order; no example is read to determine it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/count.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/data/pipe.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep {

namespace pipeline {

/// A stream through a shuffle buffer: each step returns a slot chosen uniformly and refills it from
/// the source.
template <IndexStream S>
class Shuffled {
 public:
  /// `capacity`: number of slots. Their memory is allocated here and reused in every pass.
  Shuffled(S source, std::size_t capacity, Pass pass)
      : source_(std::move(source)), capacity_(capacity), draws_(key(pass)) {
    buffer_.reserve(capacity);
  }
  std::optional<std::uint64_t> next() {
    while (!full_) {
      const auto index = buffer_.size() < capacity_ ? source_.next() : std::nullopt;
      if (index)
        buffer_.push_back(*index);
      else
        full_ = true;
    }
    if (buffer_.empty()) return std::nullopt;
    const std::size_t slot = draws_.below(static_cast<std::uint32_t>(buffer_.size()));
    const std::uint64_t chosen = buffer_[slot];
    if (const auto index = source_.next()) {
      buffer_[slot] = *index;
    } else {
      buffer_[slot] = buffer_.back();
      buffer_.pop_back();
    }
    return chosen;
  }
  void restart(Pass pass)
    requires Restartable<S>
  {
    source_.restart(pass);
    draws_ = Philox(key(pass));
    buffer_.clear();
    full_ = false;
  }

 private:
  static constexpr std::uint64_t key(Pass pass) {
    return mix(mix(pass.seed, hash_name("shuffle")), pass.number);
  }

  S source_;
  std::size_t capacity_;
  Philox draws_;
  std::vector<std::uint64_t> buffer_;
  bool full_ = false;
};

/// `D` in random order, a different one in each pass.
template <Dataset D>
class Shuffle : public Selection<D> {
 public:
  static constexpr bool reordered = true;
  static constexpr bool shuffled = true;

  /// \throws UsageError if `buffer` is 0 or exceeds 2^32 - 1.
  Shuffle(D source, std::uint64_t buffer) : Selection<D>(std::move(source)) {
    if (buffer == 0)
      throw UsageError(
          "shuffle(0): the buffer is empty; give at least 1, or the size of the data for a full "
          "shuffle");
    buffer_ = std::min(buffer, this->size().value_or(buffer));
    if (buffer_ > std::numeric_limits<std::uint32_t>::max())
      throw UsageError("shuffle({}): the buffer exceeds 4294967295 examples; give a smaller one",
                       buffer);
  }
  auto indices(Pass pass) const {
    return Shuffled<StreamOf<D>>(this->source().indices(pass), static_cast<std::size_t>(buffer_),
                                 pass);
  }
  std::uint64_t buffer() const { return buffer_; }
  const D& upstream() const { return this->source(); }

 private:
  std::uint64_t buffer_ = 0;
};

}  // namespace pipeline

/// Shuffles the examples, in a different order each pass (tf.data's `shuffle`): a buffer of
/// `buffer` examples is filled; each step returns one of them, chosen uniformly, and puts the next
/// example in its slot.
///
/// A `buffer` at least as large as the data is a full shuffle: every order is equally likely. Only
/// indices are buffered, 8 bytes per example. Put take, skip and shard before shuffle; for a random
/// part of the data, put `shuffle_once` before them.
/// \throws UsageError if `buffer` is negative, or, when applied to a source, 0.
/// \code
///   auto train = images | lockstep::shuffle(10'000) | lockstep::batch(64);
/// \endcode
inline auto shuffle(Count buffer) {
  const std::uint64_t n =
      buffer.checked("shuffle", "give at least 1, or the size of the data for a full shuffle");
  return pipeline::operation(
      [n]<class D>(D source) { return pipeline::Shuffle<D>(std::move(source), n); },
      [](auto found) { static_assert(!found.batched, LOCKSTEP_BATCHED("shuffle")); });
}

}  // namespace lockstep
