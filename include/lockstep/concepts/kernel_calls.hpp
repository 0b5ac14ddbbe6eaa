/// \file
/// Kernels as plain functions. Invariant: a kernel of `const Op&` is the same code in every
/// program, so kernels of the library can be compiled once (devices/compiled_kernels.hpp).
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

#include "lockstep/concepts/kernel.hpp"

namespace lockstep::detail {

/// Type-erased `Prepared` of an op's kernel, for one batch size.
struct PreparedOp {
  std::unique_ptr<void, void (*)(void*)> state{nullptr, nullptr};
  std::size_t scratch_bytes = 0;
};

template <class TheOp, class D>
concept KernelPrepares = requires { typename Kernel<TheOp, D>::Prepared; };

/// Whether the kernel has a pass that can be called with the type `Given`: the op itself, or the
/// Constant of an op of the plan.
template <class TheOp, class D, class Given>
concept HasForward = requires(const Given& op, const Io<D>& io) {
  requires !KernelPrepares<TheOp, D>;
  Kernel<TheOp, D>::forward(op, io);
} || requires(const Given& op, const Io<D>& io, typename Kernel<TheOp, D>::Prepared& prepared) {
  Kernel<TheOp, D>::forward(op, io, prepared);
};
template <class TheOp, class D, class Given>
concept HasBackward = requires(const Given& op, const Io<D>& io) {
  requires !KernelPrepares<TheOp, D>;
  Kernel<TheOp, D>::backward(op, io);
} || requires(const Given& op, const Io<D>& io, typename Kernel<TheOp, D>::Prepared& prepared) {
  Kernel<TheOp, D>::backward(op, io, prepared);
};

/// A kernel whose passes are plain functions of the op's value; nothing is compiled for particular
/// ops.
template <class TheOp, class D>
concept TakesValue = HasForward<TheOp, D, TheOp> && HasBackward<TheOp, D, TheOp> && requires {
  typename std::type_identity<decltype(&Kernel<TheOp, D>::forward)>;
  typename std::type_identity<decltype(&Kernel<TheOp, D>::backward)>;
};

/// The passes of a layer's op on a device. `Given` is the type that the kernel is called with: the
/// op, to which `op` then points, or the Constant of the op.
template <class TheOp, class D, bool OfLibrary = true, class Given = TheOp>
struct KernelCalls {
  using Context = typename D::Context;
  static void forward(const void* op, const Io<D>& io, void* prepared);
  static void backward(const void* op, const Io<D>& io, void* prepared);
  [[gnu::cold]] static PreparedOp prepare(const void* op, Context& context, std::size_t count);
  /// For forward alone, if the kernel has such a `prepare`.
  [[gnu::cold]] static PreparedOp prepare_forward(const void* op, Context& context,
                                                  std::size_t count);
};

template <class TheOp, class Given>
const Given& given_as([[maybe_unused]] const void* op) {
  if constexpr (std::is_same_v<Given, TheOp>) {
    return *static_cast<const TheOp*>(op);
  } else {
    static constexpr Given constants{};
    return constants;
  }
}
template <class TheOp, class D, bool OfLibrary, class Given>
void KernelCalls<TheOp, D, OfLibrary, Given>::forward(const void* op, const Io<D>& io,
                                                      [[maybe_unused]] void* prepared) {
  using K = Kernel<TheOp, D>;
  if constexpr (KernelPrepares<TheOp, D>)
    K::forward(given_as<TheOp, Given>(op), io, *static_cast<typename K::Prepared*>(prepared));
  else
    K::forward(given_as<TheOp, Given>(op), io);
}
template <class TheOp, class D, bool OfLibrary, class Given>
void KernelCalls<TheOp, D, OfLibrary, Given>::backward(const void* op, const Io<D>& io,
                                                       [[maybe_unused]] void* prepared) {
  using K = Kernel<TheOp, D>;
  if constexpr (KernelPrepares<TheOp, D>)
    K::backward(given_as<TheOp, Given>(op), io, *static_cast<typename K::Prepared*>(prepared));
  else
    K::backward(given_as<TheOp, Given>(op), io);
}
/// Erases the type of an object that a kernel has prepared.
template <class Prepared>
[[gnu::cold]] PreparedOp prepared_op(Prepared made) {
  PreparedOp result{
      {new Prepared(std::move(made)), [](void* state) { delete static_cast<Prepared*>(state); }}};
  result.scratch_bytes = static_cast<Prepared*>(result.state.get())->scratch_bytes();
  return result;
}
template <class TheOp, class D, bool OfLibrary, class Given>
PreparedOp KernelCalls<TheOp, D, OfLibrary, Given>::prepare([[maybe_unused]] const void* op,
                                                            [[maybe_unused]] Context& context,
                                                            [[maybe_unused]] std::size_t count) {
  static_assert(!OfLibrary || of_library<TheOp, D>, "using library_kernel = Kernel;");
  if constexpr (KernelPrepares<TheOp, D>)
    return prepared_op(
        prepare_kernel<Kernel<TheOp, D>>(given_as<TheOp, Given>(op), context, count));
  else
    return {};
}
template <class TheOp, class D, bool OfLibrary, class Given>
PreparedOp KernelCalls<TheOp, D, OfLibrary, Given>::prepare_forward(
    [[maybe_unused]] const void* op, [[maybe_unused]] Context& context,
    [[maybe_unused]] std::size_t count) {
  if constexpr (KernelPrepares<TheOp, D>)
    return prepared_op(prepare_kernel<Kernel<TheOp, D>>(given_as<TheOp, Given>(op), context, count,
                                                        ForwardOnly{}));
  else
    return {};
}

/// One call of a kernel: `run` of a loss, a metric or a pass over weights, `update` of an
/// optimizer.
template <class TheOp, class D, class TheIo, bool OfLibrary = true>
struct KernelRun {
  static void run(const TheOp& op, const TheIo& io);
};
template <class TheOp, class D, class TheIo, bool OfLibrary>
void KernelRun<TheOp, D, TheIo, OfLibrary>::run(const TheOp& op, const TheIo& io) {
  if constexpr (requires { Kernel<TheOp, D>::update(op, io); })
    Kernel<TheOp, D>::update(op, io);
  else
    Kernel<TheOp, D>::run(op, io);
}
template <class D, class TheOp, class TheIo>
void run_kernel(const TheOp& op, const TheIo& io) {
  KernelRun<TheOp, D, TheIo, of_library<TheOp, D>>::run(op, io);
}

}  // namespace lockstep::detail
