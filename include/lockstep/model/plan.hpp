/// \file
/// What one step does on one device: order, memory, communication; all of it constants.
/// Invariants: no node whose result nobody reads (no gradient of the input); sizes are affine in
/// the batch, bytes an example and bytes a step; each stage is one constexpr variable, since clang
/// allows each a million steps.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/model/arena.hpp"
#include "lockstep/model/fusion.hpp"
#include "lockstep/model/sequential.hpp"
#include "lockstep/model/timetable.hpp"

namespace lockstep::detail {

/// Where a pass of a step finds and leaves its values: bytes an example into the arena.
struct Places {
  std::size_t x = 0, x2 = 0, y = 0, saved = 0;
};

/// A step with the places of all that it touches: bytes an example into the arena, unless said
/// otherwise.
struct PlacedStep : PlanStep {
  Places forward, backward;  ///< `backward` also of forward run again; they differ in Recompute
  bool runs_again = false;
  int segment_begin = -1;  ///< of a Recompute block's last step: the block's first
  std::size_t dy = 0;
  std::size_t dx = 0, dx2 = 0;  ///< where the kernel writes
  std::size_t dx_sum = 0,
              dx2_sum = 0;  ///< where it belongs; differs from dx if the value has another reader
  std::size_t once = 0;     ///< bytes into the second arena
  std::size_t x_size = 0, x2_size = 0;             ///< elements an example
  bool reads_input = false, reads_input2 = false;  ///< x, x2 is the batch itself
  bool adds_dx = false, adds_dx2 = false;
  /// What the kernel declared; what it did not is null for it.
  bool keeps_x = false, keeps_x2 = false, keeps_y = false, saves = false, saves_once = false;
  std::uint64_t key = 0;  ///< of the layer's name
};

/// A range of the flat gradients that is finished when step `after` has gone backward.
struct Bucket {
  std::size_t begin = 0, end = 0;
  int after = 0;
};

/// A range of the flat state that each replica changes by its own examples.
struct StateRange {
  std::size_t begin = 0, end = 0;
};

template <class Ops, std::size_t N>
struct PlanTable {
  std::array<PlacedStep, N + 1> step{};
  OpPool<N + 1, Ops> pool{};
  std::array<Bucket, N + 1> bucket{};
  std::array<StateRange, N + 1> averaged{};
  int steps = 0, buckets = 0, averages = 0;
  std::size_t averaged_size = 0;  ///< elements of all ranges in `averaged`
  bool updates_state = false;     ///< some step changes its state while it trains
  bool output_is_input = false;
  std::size_t output = 0, output_gradient = 0;  ///< bytes an example
  std::size_t arena = 0;                        ///< bytes an example
  std::size_t arena_unshared = 0;               ///< what it would be without reuse
  std::size_t once = 0;                         ///< bytes a step
  std::size_t repeated = 0;                     ///< steps that Recompute runs again
  bool repeats_unaware = false;  ///< one of them changes its state, and does not look at `again`
  int exchanges = -1;  ///< the first step that exchanges numbers with other replicas; -1: none
};

template <class D, class Table, class... Ops>
constexpr KernelNeeds needs_of(const Table& p, const Node& n, List<Ops...>) {
  KernelNeeds result;
  int type = 0;
  const auto ask = [&]<class TheOp>() {
    if (type++ != n.type) return;
    if constexpr (!std::is_same_v<TheOp, ViewOp>) {
      using K = Kernel<TheOp, D>;
      const TheOp& op = p.pool.template of<TheOp>().op[static_cast<std::size_t>(n.op)];
      result = {K::keeps_x,       K::keeps_x2,          K::keeps_y,     K::in_place,
                K::exchanges(op), K::updates_state(op), K::knows_again, K::dx_in_place,
                K::saved(op),     K::saved_once(op)};
    }
  };
  (ask.template operator()<Ops>(), ...);
  return result;
}

/// Copies a step's op into the plan's pool, which so holds only ops that a step still has after
/// fusion, and returns its place there.
template <class Pool, class... Ops>
constexpr int keep_op(Pool& to, const Pool& from, const PlanStep& s, List<Ops...>) {
  int type = 0, place = 0;
  const auto copy = [&]<class TheOp>() {
    if (type++ == s.type)
      place =
          to.template of<TheOp>().add(from.template of<TheOp>().op[static_cast<std::size_t>(s.op)]);
  };
  (copy.template operator()<Ops>(), ...);
  return place;
}

/// Gradients are exchanged in ranges of at least this many elements.
inline constexpr std::size_t bucket_elements = 64 * 1024;

/// The second stage: what lives when, where it lies, what is exchanged when.
template <class D, auto& graph, auto& fused>
constexpr auto lay_out() {
  using Ops = PlanOps<D, typename std::remove_cvref_t<decltype(graph)>::ops>;
  constexpr std::size_t N = static_cast<std::size_t>(graph.nodes);
  constexpr std::size_t element = sizeof(ActivationOf<D>);
  PlanTable<Ops, N> p;
  p.steps = fused.steps;
  const int n = fused.steps;
  const auto index = [](int i) { return static_cast<std::size_t>(i); };
  const auto bytes = [&](int v) {
    return graph.value[static_cast<std::size_t>(v)].size() * element;
  };

  std::array<KernelNeeds, N + 1> need{};
  std::array<int, N + 1> readers{}, producer{}, root{};
  for (std::size_t v = 0; v <= N; ++v) {
    producer[v] = -1;
    root[v] = static_cast<int>(v);
  }
  for (int i = 0; i < n; ++i) {
    PlacedStep& s = p.step[index(i)];
    static_cast<PlanStep&>(s) = fused.step[index(i)];
    s.op = keep_op(p.pool, fused.pool, s, Ops{});
    need[index(i)] = needs_of<D>(p, s, Ops{});
    if (need[index(i)].exchanges && p.exchanges < 0) p.exchanges = i;
    p.updates_state = p.updates_state || need[index(i)].updates_state;
    if (need[index(i)].updates_state && !need[index(i)].exchanges && s.state_count > 0) {
      if (p.averages == 0 || p.averaged[index(p.averages - 1)].end != s.state)
        p.averaged[index(p.averages++)].begin = s.state;
      p.averaged[index(p.averages - 1)].end = s.state + s.state_count;
      p.averaged_size += s.state_count;
    }
    producer[index(s.out)] = i;
    ++readers[index(s.in0)];
    if (s.in1 >= 0) ++readers[index(s.in1)];
  }
  const Timetable<N> t = timetable_of<N>(fused.step, n, need, producer, fused.output);
  // In place: y takes x's memory if nobody else needs x. A block that runs again needs its input.
  for (int i = 0; i < n; ++i) {
    const PlacedStep& s = p.step[index(i)];
    const int by = producer[index(s.in0)];
    if (need[index(i)].in_place && !need[index(i)].keeps_x && by >= 0 && !need[index(by)].keeps_y &&
        readers[index(s.in0)] == 1 && (s.segment < 0 || p.step[index(by)].segment == s.segment))
      root[index(s.out)] = root[index(s.in0)];
  }
  // The gradient of x takes x's memory if nobody else reads x, its producer least of all.
  std::array<bool, N + 1> over{};
  for (int i = 0; i < n && graph.segments == 0; ++i) {
    const PlacedStep& s = p.step[index(i)];
    const int by = producer[index(s.in0)];
    over[index(s.in0)] = need[index(i)].dx_in_place && by >= 0 && !need[index(by)].keeps_y &&
                         readers[index(s.in0)] == 1 && s.in0 != fused.output &&
                         root[index(s.in0)] == s.in0 && root[index(s.out)] == s.out;
  }

  // Activation, saved, gradient, two temporaries of a step; activation and saved of a block that
  // runs again.
  constexpr std::size_t values = N + 1, kinds = graph.segments > 0 ? 7 : 5;
  std::array<ArenaBuffer, kinds * values> buffer{};
  const auto activation = [&](int v) -> ArenaBuffer& { return buffer[index(root[index(v)])]; };
  const auto saved = [&](int i) -> ArenaBuffer& { return buffer[values + index(i)]; };
  const auto gradient = [&](int v) -> ArenaBuffer& {
    if (over[index(v)]) return activation(v);
    return buffer[2 * values + index(root[index(v)])];
  };
  const auto temporary = [&](int i) -> ArenaBuffer& { return buffer[3 * values + index(i)]; };
  const auto temporary2 = [&](int i) -> ArenaBuffer& { return buffer[4 * values + index(i)]; };
  // The value as the passes of step i after the loss see it.
  const auto repeated = [&](int v, int i) -> ArenaBuffer& {
    if constexpr (kinds == 7) {
      const int by = producer[index(v)];
      if (by >= 0 && t.runs_again[index(by)] &&
          fused.step[index(by)].segment == fused.step[index(i)].segment)
        return buffer[5 * values + index(root[index(v)])];
    }
    return activation(v);
  };
  const auto saved_forward = [&](int i) -> ArenaBuffer& {
    if constexpr (kinds == 7)
      if (t.runs_again[index(i)]) return buffer[6 * values + index(i)];
    return saved(i);
  };
  const auto needs = [&](ArenaBuffer& b, int v, int time) {
    if (v > 0) b.needed_at(time, bytes(v));
  };
  std::array<bool, N + 1> written{};
  p.output_is_input = fused.output == 0;
  needs(activation(fused.output), fused.output, n);
  needs(gradient(fused.output), fused.output, n);
  written[index(fused.output)] = true;
  for (int i = n - 1; i >= 0; --i) {
    PlacedStep& s = p.step[index(i)];
    const KernelNeeds& k = need[index(i)];
    const int back = t.back[index(i)], again = t.again[index(i)];
    s.runs_again = t.runs_again[index(i)];
    s.segment_begin = t.segment_begin[index(i)];
    s.reads_input = s.in0 == 0;
    s.reads_input2 = s.in1 == 0;
    s.x_size = graph.value[index(s.in0)].size();
    s.keeps_x = k.keeps_x;
    s.keeps_x2 = k.keeps_x2;
    s.keeps_y = k.keeps_y;
    s.saves = k.saved > 0;
    s.saves_once = k.once > 0;
    for (const int v : {s.out, s.in0, s.in1}) {
      if (v <= 0) continue;
      needs(activation(v), v, i);
      if (s.runs_again) needs(repeated(v, i), v, again);
    }
    if (k.keeps_y) needs(repeated(s.out, i), s.out, back);
    if (k.keeps_x && s.in0 > 0) needs(repeated(s.in0, i), s.in0, back);
    if (k.keeps_x2 && s.in1 > 0) needs(repeated(s.in1, i), s.in1, back);
    if (k.saved > 0) {
      saved_forward(i).needed_at(i, k.saved);
      if (s.runs_again) saved(i).needed_at(again, k.saved);
      saved(i).needed_at(back, k.saved);
    }
    if (s.runs_again) {
      ++p.repeated;
      p.repeats_unaware = p.repeats_unaware || ((k.exchanges || k.updates_state) && !k.knows_again);
    }
    s.once = p.once;
    p.once += round_up(k.once);
    gradient(s.out).needed_at(back, bytes(s.out));
    const auto wants_gradient = [&](int v, ArenaBuffer& temp, bool& adds) {
      if (v <= 0) return;
      gradient(v).needed_at(back, bytes(v));
      adds = written[index(v)];
      written[index(v)] = true;
      if (adds) temp.needed_at(back, bytes(v));
    };
    wants_gradient(s.in0, temporary(i), s.adds_dx);
    if (s.in1 >= 0) {
      s.x2_size = graph.value[index(s.in1)].size();
      wants_gradient(s.in1, temporary2(i), s.adds_dx2);
    }
  }
  p.arena = pack(buffer, t.end);
  for (const ArenaBuffer& b : buffer)
    if (b.used()) p.arena_unshared += b.size;

  // A fused step may stand behind steps whose weights lie above its own: the finished part of the
  // gradients is bounded by the highest weight of all steps still to come.
  std::array<std::size_t, N + 1> unfinished{};
  for (int i = 0; i < n; ++i) {
    const PlacedStep& s = p.step[index(i)];
    const std::size_t end = s.w + s.w_count;
    unfinished[index(i) + 1] =
        s.w_count > 0 && end > unfinished[index(i)] ? end : unfinished[index(i)];
  }
  std::size_t end = graph.weights;
  for (int i = n - 1; i >= 0; --i) {
    PlacedStep& s = p.step[index(i)];
    s.forward = {activation(s.in0).offset, 0, activation(s.out).offset, saved_forward(i).offset};
    s.backward = {repeated(s.in0, i).offset, 0, repeated(s.out, i).offset, saved(i).offset};
    s.dy = gradient(s.out).offset;
    s.dx_sum = gradient(s.in0).offset;
    s.dx = s.adds_dx ? temporary(i).offset : s.dx_sum;
    if (s.in1 >= 0) {
      s.forward.x2 = activation(s.in1).offset;
      s.backward.x2 = repeated(s.in1, i).offset;
      s.dx2_sum = gradient(s.in1).offset;
      s.dx2 = s.adds_dx2 ? temporary2(i).offset : s.dx2_sum;
    }
    s.key = mix(hash_name(s.name), static_cast<std::uint64_t>(s.ordinal));
    const std::size_t begin = unfinished[index(i)];
    if (end - begin >= bucket_elements || (i == 0 && end > begin)) {
      p.bucket[index(p.buckets++)] = {begin, end, i};
      end = begin;
    }
  }
  if (fused.output > 0) {
    p.output = activation(fused.output).offset;
    p.output_gradient = gradient(fused.output).offset;
  }
  return p;
}

/// Whether a plan on D can run this op; a view it drops.
template <class TheOp, class D>
inline constexpr bool runs_on = HasKernel<TheOp, D> || std::is_same_v<TheOp, ViewOp>;

/// The first of the ops that D has no kernel for; `void` if it has them all.
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
  return List<At<first, Ops..., void>>{};
}

template <bool RepeatsUnaware>
struct CheckRecompute {
  static_assert(
      !RepeatsUnaware,
      "lockstep::Recompute: a kernel of the block changes its state or exchanges, and would "
      "do so twice; let it look at io.step.again and say 'knows_again'");
};

/// The plan of a sound model: `plan` is the table, `ops` its op types.
template <class Net, class D>
struct PlanOf {
  using graph_ops = typename std::remove_cvref_t<decltype(Net::graph)>::ops;
  using ops = PlanOps<D, graph_ops>;
  static constexpr auto fused = fuse<D, Net::graph>(RulesOf<D, graph_ops>{});
  static constexpr auto plan = lay_out<D, Net::graph, fused>();
  static_assert(sizeof(CheckRecompute<plan.repeats_unaware>) > 0);
};

/// FLOPs of a step's forward pass, an example.
template <class Net>
constexpr double flops_of(const PlanStep& s) {
  double flops = 0;
  for (int k = 0; k < s.node_count; ++k)
    flops += Net::graph.node[static_cast<std::size_t>(s.nodes[static_cast<std::size_t>(k)])].flops;
  return flops;
}
/// How often backward does the work of forward: for the weights, and for x if its gradient is
/// wanted.
constexpr int backward_factor(const PlacedStep& s) {
  return (s.w_count > 0 ? 1 : 0) + (s.reads_input ? 0 : 1);
}

}  // namespace lockstep::detail

namespace lockstep {

/// The output of one step, in the arena.
struct PlannedActivation {
  std::string_view layer;  ///< "conv2d"; of fused layers the first
  int ordinal = 0;         ///< 1 for conv2d_1
  int layers = 1;          ///< that the step computes: more than one if they are fused
  Shape shape;             ///< of one example
  std::size_t offset = 0;  ///< bytes an example; equal offsets mean that memory is reused
  std::size_t bytes = 0;   ///< an example
};

/// A range of the flat gradients that is exchanged while backward goes on.
struct PlannedBucket {
  std::size_t begin = 0, end = 0;  ///< elements
  std::size_t bytes = 0;
  std::string_view layer;  ///< whose backward finishes the bucket; of fused layers the first
  int ordinal = 0;
};

/// What one replica holds, computes and sends in a step. Bytes; what a library asks for as scratch
/// is known only at run time and is not counted.
template <std::size_t Activations, std::size_t Buckets>
struct NetworkPlan {
  std::array<PlannedActivation, Activations> activations{};  ///< in the order of forward
  std::array<PlannedBucket, Buckets> buckets{};              ///< in the order of backward
  std::size_t weight_bytes = 0, gradient_bytes = 0, state_bytes = 0;
  std::size_t example_bytes = 0;  ///< of the arena: values, their gradients, what kernels save
  std::size_t example_bytes_unshared = 0;   ///< the same if no memory were reused
  std::size_t step_bytes = 0;               ///< of the arena, for any batch
  std::size_t converted_example_bytes = 0;  ///< batch and output where activations are not D::real
  std::size_t averaged_state_bytes = 0;     ///< of state that replicas average, as exchanged
  double flops = 0;                         ///< forward, an example; multiplications and additions
  double backward_flops = 0, recomputed_flops = 0;  ///< an example
  int recomputed_steps = 0;                         ///< that `Recompute` runs again

  /// Activations, their gradients, and what kernels keep from forward to backward, for `batch`
  /// examples on one replica.
  constexpr std::size_t arena_bytes(std::size_t batch) const {
    return example_bytes * batch + step_bytes;
  }
  /// Buffers of an optimizer with `slots` slots: SGD 0, with momentum 1; Adam 2.
  constexpr std::size_t optimizer_bytes(std::size_t slots) const { return slots * weight_bytes; }
  /// What the replica holds in all.
  constexpr std::size_t memory_bytes(std::size_t batch, std::size_t slots) const {
    return weight_bytes + gradient_bytes + state_bytes + optimizer_bytes(slots) +
           arena_bytes(batch) + converted_example_bytes * batch;
  }
  /// FLOPs of a step that trains, for `batch` examples.
  constexpr double step_flops(std::size_t batch) const {
    return (flops + recomputed_flops + backward_flops) * static_cast<double>(batch);
  }
  /// What each of `processes` sends in a step: 2 (n - 1) / n of the gradients and of averaged state,
  /// the least that an all-reduce can do. Frames, the few sums of loss and metrics, and what layers
  /// exchange themselves are not counted. Among more than two processes Gloo sends a message of up
  /// to 64 KiB to each of the others, which is n / 2 times as much.
  constexpr std::size_t wire_bytes(std::size_t processes) const {
    if (processes < 2) return 0;
    return 2 * (processes - 1) * (gradient_bytes + averaged_state_bytes) / processes;
  }
};

namespace detail {

template <class Net, class D>
constexpr auto describe_plan() {
  constexpr auto& p = PlanOf<Net, D>::plan;
  NetworkPlan<static_cast<std::size_t>(p.steps), static_cast<std::size_t>(p.buckets)> result;
  for (std::size_t i = 0; i < result.activations.size(); ++i) {
    const PlacedStep& s = p.step[i];
    const Shape shape = Net::graph.value[static_cast<std::size_t>(s.out)];
    result.activations[i] = {s.name, s.ordinal,   s.node_count,
                             shape,  s.forward.y, shape.size() * sizeof(ActivationOf<D>)};
    result.backward_flops += backward_factor(s) * flops_of<Net>(s);
    if (s.runs_again) result.recomputed_flops += flops_of<Net>(s);
  }
  constexpr std::size_t element = sizeof(typename D::real);
  for (std::size_t i = 0; i < result.buckets.size(); ++i) {
    const Bucket& b = p.bucket[i];
    const PlacedStep& last = p.step[static_cast<std::size_t>(b.after)];
    result.buckets[i] = {b.begin, b.end, (b.end - b.begin) * element, last.name, last.ordinal};
  }
  result.weight_bytes = result.gradient_bytes = Net::graph.weights * element;
  result.state_bytes = Net::graph.state * element;
  result.example_bytes = p.arena;
  result.example_bytes_unshared = p.arena_unshared;
  result.step_bytes = p.once;
  if constexpr (!std::is_same_v<ActivationOf<D>, typename D::real>)
    result.converted_example_bytes =
        Net::input_shape.size() * sizeof(ActivationOf<D>) + 2 * Net::output_shape.size() * element;
  result.averaged_state_bytes = p.averaged_size * sizeof(double);
  result.flops = Net::graph.flops;
  result.recomputed_steps = static_cast<int>(p.repeated);
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

/// Empty for a model that has been refused in one sentence, here or where it was declared.
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

/// What a step of the model Net is on device D: memory, gradient buckets, FLOPs, bytes on the wire.
/// A constant, so that a budget can be a `static_assert`.
/// \code
///   static_assert(ls::plan<Net, ls::Cpu>.arena_bytes(64) < 8 << 20);
/// \endcode
template <Network Net, Device D>
inline constexpr auto plan = detail::network_plan<Net, D>();

}  // namespace lockstep
