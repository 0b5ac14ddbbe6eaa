/// \file
/// The interface of kernels. Invariants: a kernel overwrites y, dx and dw and never accumulates
/// into them; it allocates nothing; it does not depend on the strategy.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lockstep/concepts/collective.hpp"
#include "lockstep/concepts/device.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/core/type_list.hpp"

namespace lockstep {

/// Properties of a step and the examples that it computes, shared by all kernels of the step.
struct StepContext : BatchSlice {
  bool training = false;   ///< false: evaluate, predict
  std::uint64_t seed = 0;  ///< the model's seed
  std::uint64_t step = 0;  ///< number of the step, from 0, over the whole life of the model
  CollectiveRef group;     ///< the replicas that take part in this step
  /// Forward runs a second time, for backward (`Recompute`). A kernel that updates state or
  /// exchanges data must not repeat that, and reads the results of the first run from io.once.
  bool is_recompute = false;
  /// Rows of tables that the batch may name, from 0; backward leaves the gradients of others alone.
  std::size_t table_rows = ~std::size_t{0};
};

/// Updates weights as soon as backward has written their gradient, while both are in cache. Empty
/// if the update needs a value of the whole gradient first (several replicas or slices, a norm).
/// update(dw, count) applies the gradients dw[0] to dw[count - 1], a part of io.dw.
template <class T>
using UpdateRef = FunctionRef<void(T* dw, std::size_t count)>;

/// The operands of one kernel call. Shapes are those of the op, with a leading dimension of
/// step.count. Operand i of the op is `x[i]`, its gradient `dx[i]`; a layer with one input has `x[0]`.
/// Pointers that a kernel did not request are null: `x[i]` and `y` in backward without `keeps_x` and `keeps_y`,
/// `saved` and `once` of size 0, `w`, `dw` and `state` of ops without parameters. `dw` of a frozen
/// layer is null, if the kernel has `skips_dw`.
template <class D>
struct Io {
  using T = typename D::real;
  using A = ActivationOf<D>;
  using Context = typename D::Context;
  const StepContext& step;
  Context& device;
  std::uint64_t key;   ///< of the layer, for random draws; mix it with seed and pass
  const A* const* x;   ///< the inputs, as many as the op has operands
  A* y;                ///< output
  const T* w;          ///< weights of the layer, in the order of parameters()
  T* state;            ///< non-trainable parameters of the layer
  std::byte* saved;    ///< saved(op) bytes per example, kept from forward to backward
  std::byte* once;     ///< saved_once(op) bytes, kept from forward to backward
  std::byte* scratch;  ///< workspace of the size that Prepared requested, valid during this call
  A* dy;               ///< gradient of y; its memory may be overwritten by backward
  A* const* dx;        ///< gradients of the inputs; dx[i] is null if not needed
  T* dw;               ///< gradient of w; null if not needed, for a kernel with `skips_dw`
  /// The unrounded x[0], if A is not T and x[0] is the batch; null otherwise.
  const T* batch = nullptr;
  const std::size_t* x_size = nullptr;  ///< elements of each input, per example
  /// Update within backward, or empty. Only kernels with `updates` may call it.
  UpdateRef<T> update = {};
};

/// Requirements of a kernel on the plan. A kernel hides the members that differ from these
/// defaults.
struct KernelTraits {
  /// Backward reads the inputs, all of io.x. A kernel that reads some of them has a function
  /// instead: `static constexpr bool keeps_x(const Op&, std::size_t operand)`.
  static constexpr bool keeps_x = false;
  static constexpr bool keeps_y = false;            ///< backward reads io.y
  static constexpr bool in_place = false;           ///< y may alias x[0]
  static constexpr bool handles_recompute = false;  ///< forward checks io.step.is_recompute
  static constexpr bool dx_in_place = false;        ///< dx[0] may alias x[0]
  /// Backward writes no dw if io.dw is null, as it is in a frozen layer. For other kernels the engine
  /// then passes memory that nothing reads.
  static constexpr bool skips_dw = false;
  /// Backward calls io.update, if set, once for each of the layer's weights, after the last read of
  /// that weight. For other kernels the engine calls it after backward.
  static constexpr bool updates = false;
  /// Whether forward or backward calls io.step.group.
  static constexpr bool exchanges(const auto&) { return false; }
  /// Whether forward changes io.state in training. Unless the kernel also exchanges, all replicas
  /// then receive the mean of their states, weighted by their numbers of examples. In a frozen layer
  /// such a kernel runs with `training` = false in both passes, and neither changes nor exchanges.
  static constexpr bool updates_state(const auto&) { return false; }
  static constexpr std::size_t saved(const auto&) { return 0; }
  static constexpr std::size_t saved_once(const auto&) { return 0; }
};

/// Last argument of a `prepare` for inference, which leaves out what only backward uses.
struct ForwardOnly {};

/// The implementation of an Op on a Device. Declared and never defined here, so that a missing
/// kernel can be detected.
///
/// `static void forward(const Op&, const Io<D>&)` and `backward` with the same parameters; or,
/// restricted to some shapes, `template <MyOp op> requires (...) static void forward(Constant<op>,
/// const Io<D>&)`. A kernel with state per batch size (such as a library's primitive) has `struct
/// Prepared { std::size_t scratch_bytes() const; }` and `static Prepared prepare(const Op&,
/// D::Context&, std::size_t count)`, and receives `Prepared&` as third argument. An overload of
/// `prepare` with a fourth parameter, `ForwardOnly`, serves `ls::Predictor`: its Prepared may lack
/// what only backward uses, and forward must give the same bits. A kernel of `const Op&` is
/// compiled once for all ops of its type and reads their values at run time; one of `Constant` is
/// compiled for each op. A kernel that cannot write dx has `static constexpr bool has_dx(const
/// Op&)`; a model that needs this dx does not compile. An operand without a gradient on any device is
/// one for which the op's `has_gradient` is false.
///
/// Losses and metrics have kernels with `run` (concepts/loss.hpp, metric.hpp), optimizers with
/// `update` (concepts/optimizer.hpp).
template <class Op, class D>
struct Kernel;

/// Base of kernels whose work is done by the prepared object: `Calls(op, context, count)`, or also
/// `Calls(op, context, count, ForwardOnly{})`, has `scratch_bytes()`, `forward(op, io)` and
/// `backward(op, io)`.
template <class Op, class D, class Calls>
struct PreparedKernel : KernelTraits {
  using Prepared = Calls;
  static Prepared prepare(const Op& op, typename D::Context& context, std::size_t count) {
    return Prepared(op, context, count);
  }
  static Prepared prepare(const Op& op, typename D::Context& context, std::size_t count,
                          ForwardOnly only)
    requires std::constructible_from<Calls, const Op&, typename D::Context&, std::size_t,
                                     ForwardOnly>
  {
    return Prepared(op, context, count, only);
  }
  static void forward(const Op& op, const Io<D>& io, Prepared& prepared) {
    prepared.forward(op, io);
  }
  static void backward(const Op& op, const Io<D>& io, Prepared& prepared) {
    prepared.backward(op, io);
  }
};

template <class Op, class D>
concept HasKernel = requires { sizeof(Kernel<Op, D>); };

/// A kernel of a loss or metric that reads io.weight (sample weights); declared by its member
/// `weighs`.
template <class Op, class D>
concept Weighs = HasKernel<Op, D> && requires { requires Kernel<Op, D>::weighs; };

namespace detail {
/// Whether backward of the kernel K reads operand i.
template <class K, class Op>
constexpr bool keeps_operand([[maybe_unused]] const Op& op, [[maybe_unused]] std::size_t i) {
  if constexpr (requires { K::keeps_x(op, i); })
    return K::keeps_x(op, i);
  else
    return K::keeps_x;
}

/// The prepared state of the kernel K: for forward alone if `only` is a ForwardOnly and K has such
/// a `prepare`.
template <class K, class Op, class Context, std::same_as<ForwardOnly>... Only>
typename K::Prepared prepare_kernel(const Op& op, Context& context, std::size_t count,
                                    Only... only) {
  if constexpr (requires { K::prepare(op, context, count, only...); })
    return K::prepare(op, context, count, only...);
  else
    return K::prepare(op, context, count);
}

/// Whether the kernel is part of the library and may be compiled once (kernel_calls.hpp). Such
/// kernels declare `using library_kernel = Kernel;`. A program's replacement does not, and is
/// compiled in each unit.
template <class Op, class D>
inline constexpr bool of_library =
    requires { requires std::is_same_v<typename Kernel<Op, D>::library_kernel, Kernel<Op, D>>; };

template <class Op, class D>
struct CheckKernel {
  static_assert(HasKernel<Op, D>,
                "lockstep::Kernel: 'Op' has no kernel for device 'D'; include the device's header "
                "(lockstep/cpu.hpp, "
                "lockstep/reference.hpp) or write one");
};
}  // namespace detail

}  // namespace lockstep
