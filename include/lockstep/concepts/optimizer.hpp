/// \file
/// What an optimizer is. Invariants: it makes one pass over the flat buffers; the penalty's
/// gradient enters there, once, and is left in the gradient buffer.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/core/parameter.hpp"

namespace lockstep {

/// The most buffers that an optimizer keeps beside the weights.
inline constexpr std::size_t max_slots = 4;

/// A contiguous part of the flat buffers whose parameters share one penalty.
template <class D>
struct UpdateIo {
  using T = typename D::real;
  typename D::Context& device;
  std::size_t size;
  T* w;
  T* g;                            ///< in: gradient of the loss; out: with the penalty's
  std::array<T*, max_slots> slot;  ///< the first slots() are there
  Penalty penalty;
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

/// An optimizer declaration: an aggregate of options.
///
/// - `name`; `slots()`: buffers of state, all zero at first; `slot_name(i)`.
/// - `learning_rate`: a Schedule.
/// - `op(rate, step)`: the numbers of one update; `step` counts from 1; Kernel<Op, Device> has
///   `static void update(const Op&, const UpdateIo<Device>&)`.
template <class O>
concept Optimizer = std::copyable<O> &&
    requires(const O& optimizer, std::size_t i, std::uint64_t step) {
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
