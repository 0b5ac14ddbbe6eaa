/// \file
/// The draws of dropout on attention probabilities, on every device over host memory. Backward
/// repeats them, so that no mask is stored.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/layers/attention/dot_product_attention.hpp"

namespace lockstep::detail {

/// The factors of one example's probabilities: 0 or 1 / (1 - rate).
class AttentionDraws {
 public:
  AttentionDraws(const DotProductAttentionOp& op, const StepContext& step, std::uint64_t layer,
                 std::size_t example)
      : rate_(step.training ? static_cast<double>(op.rules.dropout) : 0.0) {
    const std::uint64_t key = mix(mix(step.seed, layer), step.pass),
                        ordinal = step.first_ordinal + example;
    key_ = {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
    stream_ = {static_cast<std::uint32_t>(ordinal), static_cast<std::uint32_t>(ordinal >> 32)};
  }
  /// Whether any probability is dropped.
  explicit operator bool() const { return rate_ > 0; }

  /// Writes the factors of keys [first, first + count) to `to`; `row` is head * queries + query.
  template <class T>
  void factors(std::size_t row, std::size_t first, std::size_t count, T* to) const {
    const double threshold = rate_ * 0x1p32;  // a word below it drops the element
    const T kept = T(1) / (T(1) - static_cast<T>(rate_));
    std::array<std::uint32_t, 4> words{};
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t key = first + i;
      if (i == 0 || key % 4 == 0)
        words = philox4x32({static_cast<std::uint32_t>(key / 4), static_cast<std::uint32_t>(row),
                            stream_[0], stream_[1]},
                           key_);
      to[i] = static_cast<double>(words[key % 4]) >= threshold ? kept : T(0);
    }
  }

 private:
  double rate_;
  std::array<std::uint32_t, 2> key_{}, stream_{};
};

}  // namespace lockstep::detail
