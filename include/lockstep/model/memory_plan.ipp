#pragma once

#include "lockstep/model/memory_plan.hpp"

#include <algorithm>
#include <array>

#include "lockstep/core/add_item.hpp"
#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

/// Names the buffers of a plan.
class BufferNames {
 public:
  explicit BufferNames(const PlanPasses& passes) : p_(passes) {}

  std::string step(std::size_t i) const { return layers_of(p_.steps[i], p_.nodes); }

  /// Buffer `id` of all.
  ArenaRange name(std::size_t id) const {
    const std::size_t size = p_.memory.size();
    std::size_t kind = 0;
    for (const std::size_t count : {size, size, size, p_.operands.size(), size}) {
      if (id < count) break;
      id -= count;
      ++kind;
    }
    switch (kind) {  // in the order of Lifetimes
      case 0:
        return {values(id), p_.overwrites[id] ? "output and gradient" : "output"};
      case 1:
        return {step(id), "saved"};
      case 2:
        return {values(id), "gradient"};
      // Written by one reader of the value, before it is added to that of another one.
      case 3:
        return {value(static_cast<std::size_t>(p_.operands[id])), "second gradient"};
      case 4:
        return {values(id), "output, recomputed"};
      default:
        return {step(id), "saved until recomputed"};
    }
  }

 private:
  std::string value(std::size_t v) const { return step(static_cast<std::size_t>(p_.producer[v])); }
  /// The steps whose outputs are at the memory of value v.
  std::string values(std::size_t v) const {
    std::string result;
    for (std::size_t w = 0; w < p_.memory.size(); ++w)
      if (static_cast<std::size_t>(p_.memory[w]) == v && exists(p_.producer[w]))
        add_item(result, ", ", value(w));
    return result;
  }

  const PlanPasses& p_;
};

void add_passes(MemoryPlan& plan, const PlanPasses& passes, std::size_t arena) {
  const BufferNames names(passes);
  const std::size_t steps = passes.steps.size();
  plan.times.resize(static_cast<std::size_t>(passes.end));
  plan.times[steps] = "loss";
  std::size_t end = arena * plan.examples;  // then data saved once per step, as place_all has it
  for (std::size_t i = steps; i-- > 0;) {
    const std::string name = names.step(i);
    const auto back = static_cast<std::size_t>(passes.back[i]);
    plan.times[i] = name + " forward";
    plan.times[back] = name + " backward";
    if (passes.is_recomputed[i])
      plan.times[static_cast<std::size_t>(passes.recompute[i])] = name + " recompute";
    const std::size_t bytes = round_up(passes.kernel[i].once);
    if (bytes > 0) plan.buffers.push_back({name, "saved once per step", i, back, end, bytes});
    end += bytes;
  }
  const bool blocks = passes.blocks.any();
  if (passes.shared_bytes > 0) {
    plan.buffers.push_back({blocks ? names.step(steps - 1) : "shared layers",
                            "second gradient of weights", blocks ? steps - 1 : steps + 1,
                            plan.times.size() - 1, end, round_up(passes.shared_bytes)});
    end += round_up(passes.shared_bytes);
  }
  if (blocks)
    plan.buffers.push_back({names.step(steps - 1), "block of rows", steps - 1, steps + 1, end,
                            passes.blocks.block_bytes});
  for (std::size_t i = 0; i < passes.buffer.size(); ++i) {
    const ArenaBuffer& b = passes.buffer[i];
    if (!b.used() || b.size == 0) continue;
    ArenaRange& range = plan.buffers.emplace_back(names.name(i));
    range.from = static_cast<std::size_t>(b.from);
    range.to = static_cast<std::size_t>(b.to);
    range.offset = b.offset * plan.examples;
    range.bytes = b.size * plan.examples;
  }
  std::sort(plan.buffers.begin(), plan.buffers.end(), [](const ArenaRange& a, const ArenaRange& b) {
    return a.from != b.from ? a.from < b.from : a.offset < b.offset;
  });
}

}  // namespace lockstep::detail

namespace lockstep {

std::string to_json(const MemoryPlan& plan) {
  using detail::json_string;
  std::string times, buffers, flops, buckets;
  for (const std::string& name : plan.times) add_item(times, ", ", json_string(name));
  for (const double f : plan.flops) add_item(flops, ", ", format_text("{}", f));
  for (const BucketTime& b : plan.buckets)
    add_item(buckets, ", ", format_text(R"({{"bytes": {}, "time": {}}})", b.bytes, b.time));
  for (const ArenaRange& b : plan.buffers)
    add_item(
        buffers, ",\n  ",
        format_text(R"({{"layer": {}, "what": {}, "from": {}, "to": {}, "offset": {}, )"
                    R"("bytes": {}}})",
                    json_string(b.layer), json_string(b.what), b.from, b.to, b.offset, b.bytes));
  return format_text(
      R"({{"device": {}, "precision": {}, "examples": {}, "arena_bytes": {}, )"
      R"("unshared_bytes": {}, "weight_bytes": {}, "gradient_bytes": {}, "state_bytes": {}, )"
      R"("averaged_state_bytes": {}, )"
      "\"times\": [{}],\n\"flops\": [{}],\n\"buckets\": [{}],\n\"buffers\": [\n  {}\n]}}\n",
      json_string(plan.device), json_string(plan.precision), plan.examples, plan.arena_bytes,
      plan.unshared_bytes, plan.weight_bytes, plan.gradient_bytes, plan.state_bytes,
      plan.averaged_state_bytes, times, flops, buckets, buffers);
}

}  // namespace lockstep
