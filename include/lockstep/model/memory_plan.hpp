/// \file
/// The arena of a step as a picture: which buffer is where, and when. Invariants: buffers whose
/// lives overlap are at different addresses; the highest end is `ls::plan`'s `arena_bytes`; a
/// program that does not include this header compiles none of it.
/// \code
///   bytes |        [ gradient of conv2d           ]
///         | [ output of conv2d        ]
///         +--------------------------------------------> times
///           conv2d   dense   loss   dense    conv2d
///           forward  forward        backward backward
/// \endcode
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lockstep/concepts/device.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/model/plan.hpp"

namespace lockstep {

/// A range of a replica's arena, and when it is in use.
struct ArenaRange {
  std::string layer;  ///< "conv2d+re_lu"; "conv2d, re_lu" where re_lu works in place
  std::string what;   ///< "output", "gradient", "output and gradient", "saved", "second gradient",
                      ///< "block of rows"
  std::size_t from = 0, to = 0;  ///< indices of MemoryPlan::times, inclusive
  std::size_t offset = 0, bytes = 0;
};

/// Gradients that are summed over the replicas while backward continues.
struct BucketTime {
  std::size_t bytes = 0, time = 0;  ///< they are complete after the kernel of this time
};

/// The arena of one replica for a number of examples, in bytes.
struct MemoryPlan {
  std::string device, precision;
  std::size_t examples = 0;
  std::vector<std::string> times{};   ///< "conv2d forward", ..., "loss", "conv2d backward"
  std::vector<ArenaRange> buffers{};  ///< by the time of their first use, then by offset
  std::size_t arena_bytes = 0;        ///< `plan.arena_bytes(examples)`
  std::size_t unshared_bytes = 0;     ///< the same without reuse of memory
  std::size_t weight_bytes = 0, gradient_bytes = 0, state_bytes = 0;  ///< in use at all times
  std::size_t averaged_state_bytes = 0;  ///< state that travels with the last bucket
  std::vector<double> flops{};           ///< of each time, for all examples
  std::vector<BucketTime> buckets{};     ///< in the order of backward
};

/// The plan as one JSON object, which `./dev plot --plan` draws and lockstep-forecast reads.
LOCKSTEP_COLD_DECL std::string to_json(const MemoryPlan& plan);

namespace detail {

/// The results of the plan's passes, without the model's type.
struct PlanPasses {
  std::span<const PlanStep> steps;
  std::span<const ValueId> operands;  // of all steps
  const Node* nodes;
  std::span<const StepId> producer;      // of each value
  std::span<const ValueId> memory;       // of each value, as in Sharing
  std::span<const bool> overwrites;      // Sharing::gradient_overwrites_value
  std::span<const KernelNeeds> kernel;   // of each step
  std::span<const int> back, recompute;  // times of each step
  std::span<const bool> is_recomputed;   // of each step
  int end;                               // of the times
  std::span<const ArenaBuffer> buffer;   // Lifetimes::buffer
  std::size_t shared_bytes;              // of SharedGradient
  OutputBlocks blocks;
};

/// Sets the times and the buffers of `plan`. `arena`: bytes per example.
LOCKSTEP_COLD_DECL void add_passes(MemoryPlan& plan, const PlanPasses& passes, std::size_t arena);

}  // namespace detail

/// Where each buffer of a step is in a replica's arena, for `examples` examples on the replica.
///
/// Repeats the passes of `ls::plan` at run time, which takes microseconds. Not included: weights,
/// optimizer and data sets, which live as long as the model, and the workspace of libraries.
/// \code
///   #include <lockstep/model/memory_plan.hpp>  // not in lockstep.hpp
///   std::cout << to_json(ls::memory_plan<Net, ls::Cpu>(64));
/// \endcode
template <Network Net, Device D>
MemoryPlan memory_plan(std::size_t examples) {
  using namespace detail;
  constexpr auto& fused = PlanOf<Net, D>::fused;
  constexpr auto& graph = Net::graph;
  constexpr auto& all = plan<Net, D>;
  constexpr std::size_t size = static_cast<std::size_t>(graph.nodes) + 1;
  constexpr bool recomputes = graph.segments > 0;
  const auto bytes = bytes_of_values<D, graph>();
  const auto needs = needs_of<D>(fused);
  const Timetable<size> times = timetable_of(fused, needs);
  const Sharing<size> sharing = sharing_of(fused, needs, recomputes);
  auto lifetimes = lifetimes_of<recomputes>(fused, needs, times, sharing, bytes);
  if constexpr (graph.ends_in_blocks()) hold_for_blocks(lifetimes, bytes);
  const std::size_t arena = pack(lifetimes.buffer, times.end);
  constexpr auto& table = PlanOf<Net, D>::plan;
  MemoryPlan result{.device = std::string(D::name),
                    .precision = std::string(D::precision),
                    .examples = examples,
                    .arena_bytes = all.arena_bytes(examples),
                    .unshared_bytes = all.example_bytes_unshared * examples + all.step_bytes,
                    .weight_bytes = all.weight_bytes,
                    .gradient_bytes = all.gradient_bytes,
                    .state_bytes = all.state_bytes,
                    .averaged_state_bytes = all.averaged_state_bytes};
  add_passes(result,
             {std::span(fused.step.item).first(static_cast<std::size_t>(fused.end)), fused.operand,
              graph.node.data(), needs.producer.item, sharing.memory.item,
              sharing.gradient_overwrites_value.item, needs.kernel.item, times.back.item,
              times.recompute_time.item, times.is_recomputed.item, times.end, lifetimes.buffer,
              table.shared.bytes, table.blocks},
             arena);
  result.flops.resize(result.times.size());
  for (StepId i{}; i < table.end(); ++i) {
    const double flops = flops_of<Net>(table.step[i]) * static_cast<double>(examples);
    result.flops[static_cast<std::size_t>(i)] = flops;
    result.flops[static_cast<std::size_t>(times.back[i])] = backward_factor(table.step[i]) * flops;
    if (times.is_recomputed[i])
      result.flops[static_cast<std::size_t>(times.recompute_time[i])] = flops;
  }
  for (std::size_t b = 0; b < all.buckets.size(); ++b)
    result.buckets.push_back(
        {all.buckets[b].bytes, static_cast<std::size_t>(times.back[table.bucket[b].after])});
  return result;
}

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/model/memory_plan.ipp"
#endif
