/// \file
/// The interface of losses. Invariant: a loss is a sum over examples, each times its sample weight;
/// the caller divides by the number of examples in the global batch.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/concepts/copyable.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/concepts/positions.hpp"
#include "lockstep/core/shape.hpp"

namespace lockstep {

/// Type of a loss' targets on a device that computes in T: std::int32_t for labels, T for real
/// values.
template <class Target, class T>
using target_as = std::conditional_t<std::same_as<Target, float>, T, Target>;

/// The operands of one call of a loss kernel: the examples of one replica, or of one virtual shard.
/// A loss over pairs of examples does not see those of other replicas.
template <class D, class Target>
struct LossIo {
  using T = typename D::real;
  typename D::Context& device;
  std::size_t count;                   ///< examples
  const T* prediction;                 ///< (count, size of the model's output)
  const target_as<Target, T>* target;  ///< (count, size of a target)
  T* gradient;                         ///< of sum * scale, shaped like prediction; null: not needed
  double scale;                        ///< 1 / examples that the mean is over
  double* sum;                         ///< += the unscaled loss of these examples
  const T* weight = nullptr;           ///< (count, weights), sample weights; null: all 1
  std::size_t weights = 1;             ///< per example: 1, or the rows of an example
};

/// A loss declaration: an aggregate of options.
///
/// - `name`, `target_type` (std::int32_t: labels, float: values).
/// - `accepts(out)`: whether the loss supports a model with this output shape.
/// - `target_shape(out)`: shape of one target.
/// - `op(out)`: a plain value; Kernel<Op, Device> has `static void run(const Op&, const
///   LossIo<Device, target_type>&)`.
/// - optional `positions(out)`: the shape of the positions that have a weight each,
///   positions_of(out) or (); without it an example has one weight. The op then has as many rows
///   (HasRows).
/// - optional `numbers()`: pairs (name, number) of options that the processes of a job compare, for
///   a type whose members are not numbers, arrays of numbers and texts; those are compared anyway.
template <class L>
concept Loss = Copyable<L> && requires(const L& loss, Shape out) {
  typename L::target_type;
  { L::name } -> std::convertible_to<std::string_view>;
  { L::accepts(out) } -> std::same_as<bool>;
  { L::target_shape(out) } -> std::same_as<Shape>;
  loss.op(out);
};

/// An op whose loss is a sum over rows; one generic kernel per device computes all such losses.
/// `example(p, t, g, scale)` returns the loss of one row of predictions and writes scale * d loss /
/// d p to g unless g is null. A row is an example; if the op has rows itself (HasRows), it is the
/// mean over them.
template <class O>
concept RowwiseLoss = requires(const O& op, const double* p, double* g,
                               const typename O::target_type* t) {
  { op.size() } -> std::same_as<std::size_t>;         // elements of a prediction
  { op.target_size() } -> std::same_as<std::size_t>;  // elements of a target
  {
    op.example(p, static_cast<const target_as<typename O::target_type, double>*>(nullptr), g, 1.0)
  } -> std::same_as<double>;
};

namespace detail {

/// The positions of a loss' examples that have a weight each; () if an example has one weight.
template <class L>
constexpr Shape weighed_positions(Shape out) {
  if constexpr (requires { L::positions(out); })
    return L::positions(out);
  else
    return {};
}

template <class L>
struct StepLossOf {
  using type = L;
  using Counts = std::size_t;
};
template <class L>
  requires requires { typename L::Step; }
struct StepLossOf<L> {
  using type = typename L::Step;
  using Counts = typename L::Counts;
};
/// A loss as a step's kernels get it: `L::Step`, which has numbers of the whole batch, or L itself.
template <class L>
using StepLoss = typename StepLossOf<L>::type;

}  // namespace detail
}  // namespace lockstep
