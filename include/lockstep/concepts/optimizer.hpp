/// \file
/// The interface of optimizers. Invariants: an update is one pass over the flat buffers, preceded
/// by another pass only if an option needs a value of the whole gradient; the gradient of the
/// penalty is added exactly once, before anything else, and stays in the gradient buffer.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "lockstep/concepts/copyable.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/core/numbers/finite.hpp"
#include "lockstep/core/parameter.hpp"
#include "lockstep/core/shape.hpp"

namespace lockstep {

/// Maximum number of state buffers of an optimizer.
inline constexpr std::size_t max_slots = 4;

/// How an optimizer updates one parameter, where parameters differ in that.
struct ParameterRule {
  /// Elements of each slot, at most as many as the parameter has; 0: no such slot.
  std::array<std::size_t, max_slots> slot{};
  double weight_decay = 0;
  Shape shape{};                ///< of the parameter as the update sees it; rank 0: its own
  bool is_by_elements = false;  ///< any part of the parameter may be updated alone
};

/// The operands of an update: a contiguous part of the flat buffers whose parameters share penalty
/// and decay, or a single parameter if the op or an option requires that.
///
/// In this order: g += gradient of the penalty; w -= decay w; the update rule, which reads
/// clamp(scale g, -limit, limit) instead of g.
template <class D>
struct UpdateIo {
  using T = typename D::real;
  typename D::Context& device;
  std::size_t size;
  T* w;
  T* g;                            ///< in: gradient of the loss; out: including the penalty's
  std::array<T*, max_slots> slot;  ///< of the first slot_count(); null: the parameter has none
  Penalty penalty;
  double decay = 0, scale = 1, limit = std::numeric_limits<double>::infinity();
  double rate = 1;               ///< multiplier of the learning rate, which the op has already
  Shape shape = {};              ///< of the parameter, if the op is per tensor
  std::byte* scratch = nullptr;  ///< workspace of the size that the kernel requested

  /// Whether decay, scaling or clipping is applied before the update rule.
  bool is_adjusted() const { return decay != 0 || scale != 1 || detail::is_finite(limit); }
};

/// A kernel that updates several parts in one call, for devices where a call costs more than its
/// work: `static void update_all(const Op&, std::span<const UpdateIo<D>>)`. The parts are in
/// ascending order and disjoint; within a part, all pointers are those of the first part plus the
/// same offset.
template <class Op, class D>
concept UpdatesAll = requires(const Op& op, std::span<const UpdateIo<D>> parts) {
  Kernel<Op, D>::update_all(op, parts);
};

/// A pass over a part of the gradients before the update: g += gradient of the penalty; sum += g,
/// if sum is set; squares += squared elements of sum, or of g without sum, if squares is set.
/// Kernel<GradientPass, Device> has `static void run(GradientPass, const GradientPassIo<Device>&)`.
struct GradientPass {};
/// The operands of a GradientPass.
template <class D>
struct GradientPassIo {
  using T = typename D::real;
  typename D::Context& device;
  std::size_t size;
  const T* w;
  T* g;
  T* sum;  ///< null: not accumulated
  Penalty penalty;
  double* squares;  ///< null: not needed
};

/// A pass over the summed gradients of a scaled loss: wrong += number of elements that are infinite
/// or NaN; g *= factor. Kernel<Unscaling, Device> has `static void run(Unscaling, const
/// UnscalingIo<Device>&)`; required only of devices that satisfy ScalesLoss.
struct Unscaling {
  double factor = 1;
};
/// The operands of an Unscaling.
template <class D>
struct UnscalingIo {
  typename D::Context& device;
  std::size_t size;
  typename D::real* g;
  double* wrong;
};

/// A pass over weights and their moving averages: average = momentum average + (1 - momentum) w,
/// then w = average if `overwrites`. Kernel<MovingAverage, Device> has `static void run(const
/// MovingAverage&, const MovingAverageIo<Device>&)`.
struct MovingAverage {
  double momentum = 0;
  bool overwrites = false;
};
/// The operands of a MovingAverage.
template <class D>
struct MovingAverageIo {
  using T = typename D::real;
  typename D::Context& device;
  std::size_t size;
  T* w;
  T* average;
};

/// The operands of a Penalty; Kernel<Penalty, Device> has `static void run(Penalty, const
/// PenaltyIo<Device>&)`.
template <class D>
struct PenaltyIo {
  typename D::Context& device;
  const typename D::real* w;
  std::size_t size;
  double* sum;  ///< += sum(l1 |w| + l2 w w)
};

/// A range of the flat weights whose parameters share one penalty.
struct PenaltySegment {
  std::size_t begin = 0, end = 0;
  Penalty penalty;
};

/// A device that sums all penalties in one call: Kernel<Penalty, Device> has `static void
/// run_all(std::span<const PenaltySegment>, const PenaltyIo<Device>&)` over all weights; the
/// segments are in ascending order and disjoint.
template <class D>
concept SumsAllPenalties = requires(std::span<const PenaltySegment> all, const PenaltyIo<D>& io) {
  Kernel<Penalty, D>::run_all(all, io);
};

/// An optimizer declaration: an aggregate of options.
///
/// - `name`; `slot_count()`: number of state buffers, filled with 0, or with `slot_start(i)` if that
///   member exists; `slot_name(i)`.
/// - `learning_rate`: a Schedule.
/// - `op(rate, step)`: the values of one update; `step` counts updates from 1. Kernel<Op, Device>
///   has `static void update(const Op&, const UpdateIo<Device>&)`. `Op::per_tensor = true` requests
///   one call per parameter. Such a kernel may have `static std::size_t scratch_bytes(const Shape&,
///   const ParameterRule&)`, the workspace of an update of one parameter.
/// - optional: `weight_decay`, and `with`, the UpdateOptions; the training loop applies both.
/// - optional, with a per-tensor op: `rule_of(name, shape)`, the ParameterRule of a parameter such as
///   "dense/kernel". Its decay replaces `weight_decay`.
template <class O>
concept Optimizer = Copyable<O> && requires(const O& optimizer, std::size_t i, std::uint64_t step) {
  { O::name } -> std::convertible_to<std::string_view>;
  { optimizer.slot_count() } -> std::same_as<std::size_t>;
  { optimizer.slot_name(i) } -> std::convertible_to<std::string_view>;
  { optimizer.learning_rate(step) } -> std::same_as<double>;
  optimizer.op(0.1, step);
};

/// An optimizer whose slots or decay depend on the parameter.
template <class O>
concept HasParameterRules =
    requires(const O& optimizer, std::string_view name, const Shape& shape) {
      { optimizer.rule_of(name, shape) } -> std::same_as<ParameterRule>;
    };

/// An op that updates each element independently; one generic kernel per device serves all such
/// optimizers. `rule<T>()` returns the function (w, g, slot...) with its constants as T, one
/// overload for each number of slots.
template <class O>
concept ElementwiseUpdate = requires(const O& op) {
  { op.slot_count() } -> std::same_as<std::size_t>;
  op.template rule<double>();
};

}  // namespace lockstep
