/// \file
/// What a kernel sees and says. Invariants: a kernel writes y, dx and dw, it never adds to them; it
/// allocates nothing; it does not know the strategy.
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

/// What a step is, and the examples that it computes: the same for all its kernels.
struct StepContext : BatchSlice {
  bool training = false;   ///< false: evaluate, predict
  std::uint64_t seed = 0;  ///< of the model
  std::uint64_t step = 0;  ///< counted from the first step of the model's life
  CollectiveRef group;     ///< the replicas of this step
  /// Forward runs once more, for backward (`Recompute`): a kernel that changes its state or
  /// exchanges must not do so again, but read what it left in io.once.
  bool is_recompute = false;
};

/// The optimizer's update of weights whose gradient backward has just written, while both are in a
/// cache. There is one if no number of the whole gradient is wanted first: one replica, one slice.
/// update(dw, count): the gradients dw[0] to dw[count - 1], a part of io.dw, change their weights.
template <class T>
using UpdateRef = FunctionRef<void(T* dw, std::size_t count)>;

/// What one call of a kernel may touch. Shapes are the op's, with step.count examples in front.
/// What a kernel did not declare is null: `x`, `x2` and `y` in backward without `keeps_x`,
/// `keeps_x2` and `keeps_y`, `saved` and `once` without bytes, `w`, `dw` and `state` without values.
template <class D>
struct Io {
  using T = typename D::real;
  using A = ActivationOf<D>;
  using Context = typename D::Context;
  const StepContext& step;
  Context& device;
  std::uint64_t key;   ///< of the layer, for random draws: mix it with seed and pass
  const A* x;          ///< input
  const A* x2;         ///< second input of a binary op, else null
  A* y;                ///< output
  const T* w;          ///< the layer's weights, in the order of parameters()
  T* state;            ///< the layer's untrained parameters
  std::byte* saved;    ///< saved(op) bytes an example, kept from forward to backward
  std::byte* once;     ///< saved_once(op) bytes, kept from forward to backward
  std::byte* scratch;  ///< as many bytes as Prepared asked for, for this call only
  A* dy;               ///< gradient of y; backward may use its memory: nobody reads it after
  A* dx;               ///< gradient of x; null if nobody wants it
  A* dx2;              ///< gradient of x2, or null
  T* dw;               ///< gradient of w
  /// x before it was rounded, if A is not T and x is the batch itself; else null.
  const T* batch = nullptr;
  /// Perhaps of this layer's weights; only a kernel that `updates` may call it.
  UpdateRef<T> update = {};
};

/// What the plan asks of a kernel; a kernel hides what it needs to change.
struct KernelTraits {
  static constexpr bool keeps_x = false;            ///< backward reads x; else io.x is null there
  static constexpr bool keeps_x2 = false;           ///< backward reads x2; else io.x2 is null there
  static constexpr bool keeps_y = false;            ///< backward reads y; else io.y is null there
  static constexpr bool in_place = false;           ///< y may be x
  static constexpr bool handles_recompute = false;  ///< forward looks at io.step.is_recompute
  static constexpr bool dx_in_place = false;        ///< dx may be x
  /// Backward calls io.update, if there is one, once for each of the layer's weights, when it has
  /// read it for the last time. For other kernels the engine does so behind backward.
  static constexpr bool updates = false;
  /// Forward or backward calls io.step.group.
  static constexpr bool exchanges(const auto&) { return false; }
  /// Forward changes io.state while it trains. Unless it also exchanges, all replicas then get the
  /// mean of their states, weighted by their numbers of examples.
  static constexpr bool updates_state(const auto&) { return false; }
  static constexpr std::size_t saved(const auto&) { return 0; }
  static constexpr std::size_t saved_once(const auto&) { return 0; }
};

/// The work of an Op on a Device: declared, never defined here, so that a missing kernel can be
/// asked for.
///
/// `static void forward(const Op&, const Io<D>&)` and `backward` likewise; or, for shapes of a
/// kind, `template <MyOp op> requires (...) static void forward(Constant<op>, const Io<D>&)`. A
/// kernel with state a batch size (a library's primitive) has `struct Prepared { std::size_t
/// scratch_bytes() const; }`, `static Prepared prepare(const Op&, D::Context&, std::size_t count)`
/// and takes `Prepared&` as third argument. A kernel is compiled once for all ops of its type, whose
/// numbers it sees at run time; one that takes a `Constant` is compiled for each op. A kernel that
/// cannot write dx has `static constexpr bool has_dx(const Op&)`, and a model that wants it is refused.
///
/// Losses, metrics and optimizers have kernels too: `run` (see concepts/loss.hpp, metric.hpp),
/// `update` (concepts/optimizer.hpp).
template <class Op, class D>
struct Kernel;

/// A base of kernels that are what they prepare: `Calls(op, context, count)` has `scratch_bytes()`,
/// `forward(op, io)` and `backward(op, io)`.
template <class Op, class D, class Calls>
struct PreparedKernel : KernelTraits {
  using Prepared = Calls;
  static Prepared prepare(const Op& op, typename D::Context& context, std::size_t count) {
    return Prepared(op, context, count);
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

/// A kernel of a loss or metric that reads io.weight, weights of examples: it says so by `weighs`.
template <class Op, class D>
concept Weighs = HasKernel<Op, D> && requires { requires Kernel<Op, D>::weighs; };

namespace detail {
/// A kernel of the library says so by `using library_kernel = Kernel;`: it may have been compiled
/// once (kernel_calls.hpp). One that a program puts in its place does not, and is compiled there.
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
