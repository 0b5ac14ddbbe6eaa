/// \file
/// The kernel of an op within another op, which has no separate kernel: SeparableConv2D and the
/// attention layers.
#pragma once

#include <cstddef>

#include "lockstep/concepts/kernel.hpp"

namespace lockstep::detail {

/// The kernel of O on D, together with its prepared state if it has one.
template <class O, class D>
struct InnerKernel {
  using K = Kernel<O, D>;
  template <class... Only>
  InnerKernel(const O&, typename D::Context&, std::size_t, Only...) {}
  std::size_t scratch_bytes() const { return 0; }
  void forward(const O& op, const Io<D>& io) { K::forward(op, io); }
  void backward(const O& op, const Io<D>& io) { K::backward(op, io); }
};
template <class O, class D>
  requires requires { typename Kernel<O, D>::Prepared; }
struct InnerKernel<O, D> {
  using K = Kernel<O, D>;
  typename K::Prepared prepared;
  template <class... Only>
  InnerKernel(const O& op, typename D::Context& context, std::size_t count, Only... only)
      : prepared(prepare_kernel<K>(op, context, count, only...)) {}
  std::size_t scratch_bytes() const { return prepared.scratch_bytes(); }
  void forward(const O& op, const Io<D>& io) { K::forward(op, io, prepared); }
  void backward(const O& op, const Io<D>& io) { K::backward(op, io, prepared); }
};

}  // namespace lockstep::detail
