#pragma once

#include "lockstep/training/step/wire_format.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/numbers/finite.hpp"

namespace lockstep::wire {

std::string Format::text() const {
  switch (kind) {
    case Kind::uncompressed:
      return "wire uncompressed";
    case Kind::bfloat16:
      return "wire bfloat16";
    case Kind::top_k:
      return (top_k.count > 0 ? format_text("wire top_k of {} elements", top_k.count)
                              : format_text("wire top_k of {} of the elements",
                                            detail::shortest_number(top_k.fraction))) +
             (top_k.warm_up > 0 ? format_text(" after {} updates", top_k.warm_up) : "");
    case Kind::power_sgd:
      break;
  }
  return format_text("wire power_sgd of rank {} from update {} with rate {} and seed {}",
                     power_sgd.rank, power_sgd.start,
                     detail::shortest_number(power_sgd.min_compression_rate), power_sgd.seed);
}

void Format::check() const {
  if (kind == Kind::top_k && top_k.count == 0 && !(top_k.fraction > 0 && top_k.fraction <= 1))
    throw UsageError("top_k: fraction is {}; it must be above 0 and at most 1",
                     detail::shortest_number(top_k.fraction));
  if (kind != Kind::power_sgd) return;
  if (power_sgd.rank < 1) throw UsageError("power_sgd: rank is 0; it must be at least 1");
  if (!detail::is_finite(power_sgd.min_compression_rate) || power_sgd.min_compression_rate < 0)
    throw UsageError("power_sgd: min_compression_rate is {}; it must be finite and at least 0",
                     detail::shortest_number(power_sgd.min_compression_rate));
}

}  // namespace lockstep::wire
