/// \file
/// Dense on the CPU: hand-written tiles (DenseTiles), a split over inputs (DenseByInputs), or
/// oneDNN, by the layer's size and the number of threads; forward of a few examples is a loop over
/// rows (DenseRows). Invariant: in float the kernel stays in
/// the flat buffer's layout (inputs, units) in all passes, since oneDNN reaches the same share of
/// the peak with that layout as with its own, without a copy. In bfloat16 the kernel must be
/// converted anyway, and is converted into oneDNN's layout.
#pragma once

#include <concepts>
#include <cstddef>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/layers/dense.hpp"

namespace lockstep {
namespace detail {

/// The prepared passes of one inner product; in dense.ipp.
template <class D>
class InnerProductCalls;

}  // namespace detail

template <class P>
struct Kernel<DenseOp, BasicCpu<P>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCpu<P>;
  using Prepared = detail::InnerProductCalls<D>;
  static constexpr bool keeps_x = true, dx_in_place = true, updates = true, skips_dw = true;

  template <std::same_as<ForwardOnly>... Only>
  static Prepared prepare(const DenseOp& op, typename D::Context& context, std::size_t count,
                          Only... only) {
    return Prepared(op, context, count, false, true, only...);
  }
  static void forward(const DenseOp& op, const Io<D>& io, Prepared& prepared) {
    prepared.forward(op, io);
  }
  static void backward(const DenseOp& op, const Io<D>& io, Prepared& prepared) {
    prepared.backward(op, io);
  }
};

static_assert(HasKernel<DenseOp, Cpu> && HasKernel<DenseOp, CpuBFloat16>);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cpu/dense.ipp"
#endif
