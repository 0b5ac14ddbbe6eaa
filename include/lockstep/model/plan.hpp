/// \file
/// The plan of a step on one device, as constants: order of execution, memory and communication.
/// Invariants: gradients that nothing reads are not computed (of values with no weight before
/// them); sizes are affine in the batch, bytes per example and bytes per step; each stage is one
/// constexpr variable, since clang limits the evaluation of each to a million steps.
/// \code
///   graph --fuse--> steps --needs--> timetable --sharing--> lifetimes --pack--> places, buckets
///         (fusion.hpp)      \_______________ model/plan/*.hpp _______________/
/// \endcode
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <string_view>
#include <type_traits>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/model/fusion.hpp"
#include "lockstep/model/plan/buckets.hpp"
#include "lockstep/model/plan/output_blocks.hpp"
#include "lockstep/model/plan/places.hpp"
#include "lockstep/model/plan/shared_weights.hpp"
#include "lockstep/model/sequential.hpp"

namespace lockstep::detail {

template <class Ops, std::size_t Size, std::size_t Operands>
struct PlanTable : Buckets<Size>, AveragedState<Size>, ArenaSize {
  Table<StepId, PlacedStep, Size> step{};
  std::array<PlacedOperand, Operands> operand{};     ///< of all steps
  std::array<std::size_t, Operands> operand_size{};  ///< elements per example
  OpPool<Size, Ops> pool{};
  int steps = 0;
  bool updates_state = false;  ///< whether a step changes its state in training
  bool output_is_input = false;
  std::size_t output = 0, output_gradient = 0;  ///< bytes per example
  std::size_t input_gradient = 0;               ///< the same, in a plan that computes it
  SharedGradient shared{};                      ///< of weights that several steps or blocks use
  OutputBlocks blocks{};
  std::size_t recomputed = 0;        ///< number of steps that Recompute runs again
  bool recompute_unsafe = false;     ///< one of them changes its state or exchanges, and does not
                                     ///< handle recomputation
  std::size_t lacks_dx = Ops::size;  ///< index of the type of an op that cannot compute a needed dx
  std::size_t untrained = Ops::size;  ///< of one with weights that do not change the loss
  StepId exchanges = StepId::none;    ///< the first step that exchanges data with other replicas

  constexpr StepId end() const { return StepId{steps}; }
};

/// Copies the op of a step to the plan's pool and returns its index there. The pool thus holds only
/// ops that remain after fusion. `by_vectors`: the op of a single vector, which other steps do not use.
template <class Pool, class... Ops>
constexpr std::size_t keep_op(Pool& to, const Pool& from, const PlanStep& s, bool by_vectors,
                              List<Ops...>) {
  int type = 0;
  std::size_t place = 0;
  const auto copy = [&]<class TheOp>() {
    if (type++ != s.type) return;
    const TheOp& op = from.template of<TheOp>().op[s.op];
    if constexpr (OfVectors<TheOp>) {
      if (by_vectors) {
        place = to.template of<TheOp>().append(op.of_vector());
        return;
      }
    }
    place = to.template of<TheOp>().add(op);
  };
  (copy.template operator()<Ops>(), ...);
  return place;
}

/// The steps, before offsets are assigned. `blocks`: the network's output is computed in blocks.
template <class Ops, std::size_t Size, std::size_t Operands>
constexpr PlanTable<Ops, Size, Operands> copy_steps(
    const FusedGraph<Ops, Size, Operands>& fused, const Table<ValueId, std::size_t, Size>& elements,
    bool blocks = false) {
  PlanTable<Ops, Size, Operands> p;
  p.steps = static_cast<int>(fused.end);
  for (StepId i{}; i < fused.end; ++i) {
    PlacedStep& s = p.step[i];
    static_cast<PlanStep&>(s) = fused.step[i];
    s.op = keep_op(p.pool, fused.pool, s, blocks && s.in_blocks, Ops{});
    for (std::size_t k = s.operands_begin; k < s.operands_end; ++k)
      p.operand_size[k] = elements[fused.operand[k]];
  }
  return p;
}

/// Collects side effects of the steps: state updates, exchanges, recomputation.
template <class Ops, std::size_t Size, std::size_t Operands>
constexpr void add_effects(PlanTable<Ops, Size, Operands>& p, const Needs<Size, Operands>& needs,
                           const Timetable<Size>& times) {
  for (StepId i{}; i < p.end(); ++i) {
    const KernelNeeds& k = needs.kernel[i];
    const bool infers = k.updates_state && p.step[i].is_frozen;
    if (k.exchanges && !infers && !exists(p.exchanges)) p.exchanges = i;
    p.updates_state = p.updates_state || (k.updates_state && !infers);
    const PlanStep& s = p.step[i];
    const auto type = static_cast<std::size_t>(s.type);
    if (s.trains() && !needs.has_gradient[s.out]) p.untrained = type;
    if (k.lacks_dx)
      for (std::size_t o = s.operands_begin; o < s.operands_end; ++o)
        if (needs.operand[o].wants_dx) p.lacks_dx = type;
    if (!times.is_recomputed[i]) continue;
    ++p.recomputed;
    p.recompute_unsafe =
        p.recompute_unsafe || ((k.exchanges || k.updates_state) && !infers && !k.handles_recompute);
  }
}

/// Bytes of each value in the arena, per example.
template <class D, auto& graph>
constexpr auto bytes_of_values() {
  Table<ValueId, std::size_t, static_cast<std::size_t>(graph.nodes) + 1> bytes{};
  for (ValueId v{}; static_cast<int>(v) <= graph.nodes; ++v)
    bytes[v] = graph.value[v].size() * sizeof(ActivationOf<D>);
  if (graph.ends_in_blocks()) bytes[graph.output] = 0;
  return bytes;
}

/// The second stage: lifetimes, arena offsets and buckets.
template <class D, auto& graph, auto& fused, bool wants_input = false>
constexpr auto lay_out() {
  constexpr std::size_t size = static_cast<std::size_t>(graph.nodes) + 1;
  constexpr bool recomputes = graph.segments > 0;
  Table<ValueId, std::size_t, size> elements{};  // of each value, per example
  for (ValueId v{}; static_cast<std::size_t>(v) < size; ++v) elements[v] = graph.value[v].size();
  const auto bytes = bytes_of_values<D, graph>();

  const auto needs = needs_of<D>(fused, wants_input);
  const Timetable<size> times = timetable_of(fused, needs);
  const Sharing<size> sharing = sharing_of(fused, needs, recomputes);
  auto lifetimes = lifetimes_of<recomputes>(fused, needs, times, sharing, bytes);
  if constexpr (graph.ends_in_blocks()) hold_for_blocks(lifetimes, bytes);

  auto p = copy_steps(fused, elements, true);
  add_effects(p, needs, times);
  static_cast<ArenaSize&>(p) = place_all(p.step, p.operand, lifetimes);
  constexpr std::size_t real = sizeof(typename D::real);
  if constexpr (graph.further_calls > 0) p.shared = add_shared_weights(p.step, p.end(), real);
  if constexpr (graph.ends_in_blocks()) {
    const PlacedStep& last = p.step[before(p.end())];
    if (last.trains()) p.shared.bytes = std::max(p.shared.bytes, last.w_count * real);
  }
  p.shared.offset = p.once;
  p.once += round_up(p.shared.bytes);
  if constexpr (graph.ends_in_blocks()) {
    p.blocks = output_blocks(graph.value[graph.output], graph.block_rows, p.once,
                             sizeof(ActivationOf<D>), real, needs.kernel[before(p.end())]);
    p.once += p.blocks.block_bytes;
  }
  static_cast<Buckets<size>&>(p) = buckets_of(fused, graph.weights);
  static_cast<AveragedState<size>&>(p) = averaged_state_of(fused, needs);
  p.output_is_input = fused.output == ValueId::batch;
  if (!p.output_is_input) {
    p.output = lifetimes.activation(fused.output).offset;
    p.output_gradient = lifetimes.gradient(fused.output).offset;
  }
  if constexpr (wants_input) p.input_gradient = lifetimes.gradient(ValueId::batch).offset;
  return p;
}

/// Whether a plan on D can run this op. Views are removed by fusion.
template <class TheOp, class D>
inline constexpr bool runs_on = HasKernel<TheOp, D> || std::is_same_v<TheOp, ViewOp>;

template <std::size_t I, class... Ops>
constexpr auto op_or_void(List<Ops...>) {
  return List<At<I, Ops..., void>>{};
}

/// The first of the ops that D has no kernel for; `void` if there is none.
template <class D, class... Ops>
constexpr auto first_without_kernel(List<Ops...>) {
  constexpr std::size_t first = [] {
    std::size_t i = 0;
    for (const bool runs : std::initializer_list<bool>{runs_on<Ops, D>..., false}) {
      if (!runs) break;
      ++i;
    }
    return i;
  }();
  return op_or_void<first>(List<Ops...>{});
}

template <bool RecomputeUnsafe>
struct CheckRecompute {
  static_assert(
      !RecomputeUnsafe,
      "lockstep::Recompute: a kernel of the block updates state or exchanges data, and would "
      "do so twice; skip this in the kernel if io.step.is_recompute is true, and set its "
      "'handles_recompute' to true");
};

template <bool Unsafe>
struct CheckBlocks {
  static_assert(!Unsafe,
                "lockstep::InBlocks: the kernel of the last layer saves data, works in place or "
                "exchanges data, which a kernel that is called for blocks of rows must not");
};

template <class Lacking, class D>
struct CheckGradient;
template <class TheOp, class D>
struct CheckGradient<List<TheOp>, D> {
  static_assert(std::is_void_v<TheOp>,
                "lockstep::Kernel: 'TheOp' cannot compute the gradient of its input on device 'D'; "
                "put it before all layers with weights");
};

template <class Untrained>
struct CheckTrained;
template <class TheOp>
struct CheckTrained<List<TheOp>> {
  static_assert(
      std::is_void_v<TheOp>,
      "lockstep::Model: the loss does not depend on the weights of 'TheOp': nothing reads "
      "its result, or only as a mask; remove the layer, or write ls::Frozen<Layer>");
};

/// The steps of a valid model after fusion, in training and in inference.
template <class Net, class D>
struct FusedOf {
  using graph_ops = typename std::remove_cvref_t<decltype(Net::graph)>::ops;
  using ops = PlanOps<D, graph_ops>;
  static constexpr auto fused = fuse<D, Net::graph>(RulesOf<D, graph_ops>{});
};

/// The plan of a valid model: `plan` is the table, `ops` its op types.
template <class Net, class D>
struct PlanOf : FusedOf<Net, D> {
  using typename FusedOf<Net, D>::ops;
  using FusedOf<Net, D>::fused;
  static constexpr auto plan = lay_out<D, Net::graph, fused>();
  static_assert(sizeof(CheckRecompute<plan.recompute_unsafe>) > 0);
  static_assert(sizeof(CheckBlocks<plan.blocks.unsafe>) > 0);
  static_assert(sizeof(CheckGradient<decltype(op_or_void<plan.lacks_dx>(ops{})), D>) > 0);
  static_assert(sizeof(CheckTrained<decltype(op_or_void<plan.untrained>(ops{}))>) > 0);
};

template <class Lacking, class D>
struct CheckInputGradient;
template <class TheOp, class D>
struct CheckInputGradient<List<TheOp>, D> {
  static_assert(
      std::is_void_v<TheOp>,
      "lockstep::Model: 'TheOp' cannot compute the gradient of its input on device 'D', so "
      "the model has no input_gradients");
};

/// The plan of a step that computes the gradient of the batch, too.
template <class Net, class D>
struct InputPlanOf {
  using ops = typename PlanOf<Net, D>::ops;
  static constexpr auto fused = fuse<D, Net::graph>(
      RulesOf<D, typename std::remove_cvref_t<decltype(Net::graph)>::ops>{}, true);
  static constexpr auto plan = lay_out<D, Net::graph, fused, true>();
  static_assert(sizeof(CheckInputGradient<decltype(op_or_void<plan.lacks_dx>(ops{})), D>) > 0);
};

/// FLOPs of a step's forward pass, per example.
template <class Net>
constexpr double flops_of(const PlanStep& s) {
  double flops = 0;
  for (int k = 0; k < s.node_count; ++k)
    flops += Net::graph.node[s.nodes[static_cast<std::size_t>(k)]].flops;
  return flops;
}
/// FLOPs of backward divided by those of forward: once for dw, and once for dx if it is needed.
constexpr int backward_factor(const PlacedStep& s) {
  return (s.trains() ? 1 : 0) + (s.wants_dx ? 1 : 0);
}

}  // namespace lockstep::detail

namespace lockstep {

/// The output of one step, in the arena.
struct PlannedActivation {
  std::string_view layer;  ///< "conv2d"; the first layer of a fused step
  std::string_view block;  ///< "decoder", the named block of the layer; empty outside
  int ordinal = 0;         ///< 1 for conv2d_1
  int layers = 1;          ///< number of layers in the step, more than one if fused
  Shape shape;             ///< of one example
  std::size_t offset = 0;  ///< bytes per example; equal offsets mean that memory is reused
  std::size_t bytes = 0;   ///< per example; 0 if only a block of it exists at a time, see InBlocks
};

/// A range of the flat gradients that is exchanged while backward continues.
struct PlannedBucket {
  std::size_t begin = 0, end = 0;  ///< elements
  std::size_t bytes = 0;
  std::string_view layer;  ///< the layer whose backward completes the bucket; the first layer of a
                           ///< fused step
  std::string_view block;  ///< its named block; empty outside
  int ordinal = 0;
};

/// Memory, computation and communication of one replica in a step. In bytes, without the workspace
/// that libraries request at run time.
template <std::size_t Activations, std::size_t Buckets>
struct NetworkPlan {
  std::array<PlannedActivation, Activations> activations{};  ///< in the order of forward
  std::array<PlannedBucket, Buckets> buckets{};              ///< in the order of backward
  std::size_t weight_bytes = 0, gradient_bytes = 0, state_bytes = 0;
  std::size_t example_bytes = 0;  ///< arena: values, their gradients, data saved by kernels
  std::size_t example_bytes_unshared = 0;   ///< the same without reuse of memory
  std::size_t step_bytes = 0;               ///< arena, independent of the batch
  std::size_t converted_example_bytes = 0;  ///< batch and output where activations are not D::real
  std::size_t averaged_state_bytes = 0;     ///< state averaged over replicas, in the type that is
                                            ///< exchanged
  double flops = 0;                         ///< forward, per example; additions and multiplications
  double backward_flops = 0, recomputed_flops = 0;  ///< per example
  int recomputed_steps = 0;                         ///< that `Recompute` runs again

  /// Activations, their gradients, and data saved from forward to backward, for `batch` examples on
  /// one replica.
  constexpr std::size_t arena_bytes(std::size_t batch) const {
    return example_bytes * batch + step_bytes;
  }
  /// Buffers of an optimizer with `slot_count` slots for all weights, which every replica of
  /// ls::Replicated holds: SGD 0, with momentum 1; Adam 2.
  constexpr std::size_t optimizer_bytes(std::size_t slot_count) const {
    return slot_count * weight_bytes;
  }
  /// Total memory of the replica.
  constexpr std::size_t memory_bytes(std::size_t batch, std::size_t slot_count) const {
    return weight_bytes + gradient_bytes + state_bytes + optimizer_bytes(slot_count) +
           arena_bytes(batch) + converted_example_bytes * batch;
  }
  /// FLOPs of a training step, for `batch` examples.
  constexpr double step_flops(std::size_t batch) const {
    return (flops + recomputed_flops + backward_flops) * static_cast<double>(batch);
  }
  /// Bytes that each of `processes` sends in a step of ls::Replicated: 2 (n - 1) / n of the
  /// gradients and of averaged state, the lower bound of an all-reduce. Frame headers, the sums of
  /// loss and metrics, and exchanges of layers are not included. With 3 to 16 processes, messages
  /// of up to 64 KiB go to every peer, which is n / 2 times as much.
  constexpr std::size_t wire_bytes(std::size_t processes) const {
    if (processes < 2) return 0;
    return 2 * (processes - 1) * (gradient_bytes + averaged_state_bytes) / processes;
  }
  /// Bytes that each worker of ls::ParameterServer sends in a step, without what `wire_bytes` leaves
  /// out and averaged state: its gradients, each part to the server that owns it.
  constexpr std::size_t push_bytes() const { return gradient_bytes; }
  /// Bytes that all servers together send in a step: the weights, to each other of `processes`.
  constexpr std::size_t pull_bytes(std::size_t processes) const {
    return weight_bytes * (processes - 1);
  }
};

namespace detail {

template <class Net, class D>
constexpr auto describe_plan() {
  constexpr auto& p = PlanOf<Net, D>::plan;
  NetworkPlan<static_cast<std::size_t>(p.steps), p.buckets> result;
  for (std::size_t i = 0; i < result.activations.size(); ++i) {
    const PlacedStep& s = p.step[StepId{static_cast<int>(i)}];
    const Shape shape = Net::graph.value[s.out];
    result.activations[i] = {s.name,
                             s.block,
                             s.ordinal,
                             s.node_count,
                             shape,
                             s.forward.y,
                             s.in_blocks ? 0 : shape.size() * sizeof(ActivationOf<D>)};
    result.backward_flops += backward_factor(s) * flops_of<Net>(s);
    if (s.is_recomputed) result.recomputed_flops += flops_of<Net>(s);
  }
  constexpr std::size_t element = sizeof(typename D::real);
  for (std::size_t i = 0; i < result.buckets.size(); ++i) {
    const Bucket& b = p.bucket[i];
    const PlacedStep& last = p.step[b.after];
    result.buckets[i] = {b.begin,   b.end,      (b.end - b.begin) * element,
                         last.name, last.block, last.ordinal};
  }
  result.weight_bytes = result.gradient_bytes = Net::graph.weights * element;
  result.state_bytes = Net::graph.state * element;
  result.example_bytes = p.arena;
  result.example_bytes_unshared = p.arena_unshared;
  result.step_bytes = p.once;
  if constexpr (!std::is_same_v<ActivationOf<D>, typename D::real>)
    result.converted_example_bytes = Net::input_shape.size() * sizeof(ActivationOf<D>) +
                                     (p.blocks.any() ? 0 : 2 * Net::output_shape.size() * element);
  result.averaged_state_bytes = p.averaged_size * sizeof(double);
  result.flops = Net::graph.flops;
  result.recomputed_steps = static_cast<int>(p.recomputed);
  return result;
}

template <class Missing, class D>
struct CheckKernels;
template <class D>
struct CheckKernels<List<void>, D> {
  static constexpr bool pass = true;
};
template <class TheOp, class D>
struct CheckKernels<List<TheOp>, D> {
  static constexpr bool pass = false;
  static_assert(sizeof(CheckKernel<TheOp, D>) > 0);
};

/// Empty for a model with an error that was reported here or where the model was declared.
template <class Net, class D>
constexpr auto network_plan() {
  if constexpr (!Net::valid)
    return NetworkPlan<0, 0>{};
  else if constexpr (!CheckKernels<decltype(first_without_kernel<D>(
                                       typename std::remove_cvref_t<decltype(Net::graph)>::ops{})),
                                   D>::pass)
    return NetworkPlan<0, 0>{};
  else
    return describe_plan<Net, D>();
}

}  // namespace detail

/// The plan of a step of model Net on device D: memory, gradient buckets, FLOPs, bytes on the wire.
/// A constant, so a budget can be a `static_assert`.
/// \code
///   static_assert(ls::plan<Net, ls::Cpu>.arena_bytes(64) < 8 << 20);
/// \endcode
template <Network Net, Device D>
inline constexpr auto plan = detail::network_plan<Net, D>();

}  // namespace lockstep
