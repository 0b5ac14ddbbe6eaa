/// \file
/// What an optimizer is. Invariants: it makes one pass over the flat buffers, unless an option asks
/// for a number of all of a gradient first; the penalty's gradient enters once, before all else,
/// and is left in the gradient buffer.
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
#include "lockstep/core/finite.hpp"
#include "lockstep/core/parameter.hpp"

namespace lockstep {

/// The most buffers that an optimizer keeps beside the weights.
inline constexpr std::size_t max_slots = 4;

/// A contiguous part of the flat buffers whose parameters are treated alike: all that share penalty
/// and decay, or one parameter, if the op or an option asks for that.
///
/// The update begins with g += the penalty's gradient, then w -= decay w, and then sees in the
/// place of g: scale g, cut to [-limit, limit].
template <class D>
struct UpdateIo {
  using T = typename D::real;
  typename D::Context& device;
  std::size_t size;
  T* w;
  T* g;                            ///< in: gradient of the loss; out: with the penalty's
  std::array<T*, max_slots> slot;  ///< the first slots() are there
  Penalty penalty;
  double decay = 0, scale = 1, limit = std::numeric_limits<double>::infinity();

  /// Whether there is more to do before the update than to add a penalty's gradient.
  bool is_adjusted() const { return decay != 0 || scale != 1 || detail::is_finite(limit); }
};

/// A kernel that updates several parts by one call, where a call costs more than its work: `static
/// void update_all(const Op&, std::span<const UpdateIo<D>>)`. The parts ascend and do not overlap;
/// all pointers of one are those of the first, moved on by the same number of elements.
template <class Op, class D>
concept UpdatesAll = requires(const Op& op, std::span<const UpdateIo<D>> parts) {
  Kernel<Op, D>::update_all(op, parts);
};

/// A pass over a part of the gradients before the update: g += the penalty's gradient; sum += g, if
/// there is a sum; squares += the squares of all elements of the sum, else of g, if wanted.
/// Kernel<GradientPass, Device> has `static void run(GradientPass, const GradientPassIo<Device>&)`.
struct GradientPass {};
/// What the kernel of a GradientPass may touch.
template <class D>
struct GradientPassIo {
  using T = typename D::real;
  typename D::Context& device;
  std::size_t size;
  const T* w;
  T* g;
  T* sum;  ///< null: none
  Penalty penalty;
  double* squares;  ///< null: not wanted
};

/// A pass over the summed gradients of a scaled loss: wrong += how many of them are infinite or
/// NaN; g *= factor. Kernel<Unscaling, Device> has `static void run(Unscaling, const
/// UnscalingIo<Device>&)`; only a device that ScalesLoss needs it.
struct Unscaling {
  double factor = 1;
};
/// What the kernel of an Unscaling may touch.
template <class D>
struct UnscalingIo {
  typename D::Context& device;
  std::size_t size;
  typename D::real* g;
  double* wrong;
};

/// A pass over weights and their moving averages: average = momentum average + (1 - momentum) w,
/// and then w = average if it `overwrites`. Kernel<MovingAverage, Device> has `static void
/// run(const MovingAverage&, const MovingAverageIo<Device>&)`.
struct MovingAverage {
  double momentum = 0;
  bool overwrites = false;
};
/// What the kernel of a MovingAverage may touch.
template <class D>
struct MovingAverageIo {
  using T = typename D::real;
  typename D::Context& device;
  std::size_t size;
  T* w;
  T* average;
};

/// What the kernel of a Penalty may touch: Kernel<Penalty, Device> has `static void run(Penalty,
/// const PenaltyIo<Device>&)`.
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

/// A device that sums several penalties by one call: Kernel<Penalty, Device> has `static void
/// run_all(std::span<const PenaltySegment>, const PenaltyIo<Device>&)`, of all weights; the
/// segments ascend and do not overlap.
template <class D>
concept SumsAllPenalties = requires(std::span<const PenaltySegment> all, const PenaltyIo<D>& io) {
  Kernel<Penalty, D>::run_all(all, io);
};

/// An optimizer declaration: an aggregate of options.
///
/// - `name`; `slots()`: buffers of state, all zero at first, or `slot_start(i)` if there is such a
///   member; `slot_name(i)`.
/// - `learning_rate`: a Schedule.
/// - `op(rate, step)`: the numbers of one update; `step` counts updates from 1; Kernel<Op, Device>
///   has `static void update(const Op&, const UpdateIo<Device>&)`. `Op::per_tensor = true` asks for
///   one call a parameter.
/// - perhaps `weight_decay`, and `with`, the UpdateOptions: training sees to both.
template <class O>
concept Optimizer = Copyable<O> && requires(const O& optimizer, std::size_t i, std::uint64_t step) {
  { O::name } -> std::convertible_to<std::string_view>;
  { optimizer.slots() } -> std::same_as<std::size_t>;
  { optimizer.slot_name(i) } -> std::convertible_to<std::string_view>;
  { optimizer.learning_rate(step) } -> std::same_as<double>;
  optimizer.op(0.1, step);
};

/// An op that updates each element by itself: one loop a device serves all such optimizers.
/// `rule<T>()` returns the function (w, g, slot...) with its numbers as T, one overload for each
/// number of slots.
template <class O>
concept ElementwiseUpdate = requires(const O& op) {
  { op.slots() } -> std::same_as<std::size_t>;
  op.template rule<double>();
};

}  // namespace lockstep
