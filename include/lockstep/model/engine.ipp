#pragma once

#include "lockstep/model/engine.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep::detail {

void throw_batch_too_large(const OutOfMemory& e, std::string_view device, std::size_t count,
                           std::size_t bytes_per_example) {
  throw OutOfMemory(
      e.bytes(), e.free(),
      "{}: out of memory: the activations of {} examples on one replica need {} KiB, {} KiB each, "
      "and {} KiB are free; the largest batch of a replica that fits has {} examples: use a "
      "smaller batch, more devices, or ls::Recompute",
      device, count, e.bytes() >> 10, bytes_per_example >> 10, e.free() >> 10,
      e.free() / std::max<std::size_t>(bytes_per_example, 1));
}

HeldPlan held_plan(std::span<const PlacedStep> step, std::span<const PlacedOperand> operand,
                   std::span<const Bucket> bucket, std::string_view held) {
  if (held.empty()) return {step, operand, bucket, {}, {}, {}};
  HeldPlan now;
  now.own_steps = std::make_unique<PlacedStep[]>(step.size());
  std::copy(step.begin(), step.end(), now.own_steps.get());
  const std::span<PlacedStep> steps{now.own_steps.get(), step.size()};
  now.own_operands = std::make_unique<PlacedOperand[]>(operand.size());
  std::copy(operand.begin(), operand.end(), now.own_operands.get());
  std::size_t values = 1;
  for (const PlacedStep& s : steps) values = std::max(values, static_cast<std::size_t>(s.out) + 1);
  const auto has_gradient = std::make_unique<bool[]>(values);
  has_gradient[0] = std::any_of(operand.begin(), operand.end(),
                                [](const PlacedOperand& o) { return o.is_batch && o.wants_dx; });
  const auto needs = [&](ValueId v) -> bool& { return has_gradient[static_cast<std::size_t>(v)]; };
  std::vector<Slice> trained;  // ranges of weights, ascending
  for (std::size_t i = 0; i < steps.size(); ++i) {
    PlacedStep& s = steps[i];
    s.is_held = held[i] == '1';
    if (s.wants_dw() && s.completes_dw) {   // once for weights with several calls
      trained.push_back({s.w, s.w_count});  // a fused step may stand after higher ones
      for (std::size_t k = trained.size() - 1; k > 0 && trained[k - 1].first > s.w; --k)
        std::swap(trained[k - 1], trained[k]);
    }
    s.wants_dx = false;
    for (std::size_t k = s.operands_begin; k < s.operands_end; ++k) {
      PlacedOperand& o = now.own_operands[k];
      o.wants_dx = o.wants_dx && needs(o.value);
      o.adds_dx = o.adds_dx && o.wants_dx;
      s.wants_dx = s.wants_dx || o.wants_dx;
    }
    needs(s.out) = s.runs_backward();
  }
  now.own_buckets = std::make_unique<Bucket[]>(bucket.size() + trained.size());
  std::size_t buckets = 0;
  for (const Bucket& b : bucket)
    for (std::size_t k = trained.size(); k-- > 0;) {
      const std::size_t begin = std::max(trained[k].first, b.begin),
                        end = std::min(trained[k].first + trained[k].count, b.end);
      if (begin >= end) continue;
      Bucket* const last = buckets > 0 ? &now.own_buckets[buckets - 1] : nullptr;
      if (last != nullptr && last->begin == end && last->after == b.after)
        last->begin = begin;
      else
        now.own_buckets[buckets++] = {begin, end, b.after};
    }
  now.step = steps;
  now.operand = {now.own_operands.get(), operand.size()};
  now.bucket = {now.own_buckets.get(), buckets};
  return now;
}

}  // namespace lockstep::detail
