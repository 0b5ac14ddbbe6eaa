/// \file
/// The kernel of an op within another op, which has no separate kernel: SeparableConv2D, layers over
/// (steps, channels), TimeDistributed, pooling over volumes, and the attention layers.
#pragma once

#include <cstddef>

#include "lockstep/concepts/kernel_calls.hpp"

namespace lockstep::detail {

/// The kernel of O on D for one batch size. It is called as a plain function, so that a program uses the
/// one of the compiled library.
template <class O, class D>
class InnerKernel {
  using Calls = KernelCalls<O, D, of_library<O, D>>;

 public:
  template <class... Only>
  InnerKernel(const O& op, typename D::Context& context, std::size_t count, Only...) {
    if constexpr (sizeof...(Only) > 0)
      prepared_ = Calls::prepare_forward(&op, context, count);
    else
      prepared_ = Calls::prepare(&op, context, count);
  }
  std::size_t scratch_bytes() const { return prepared_.scratch_bytes; }
  void forward(const O& op, const Io<D>& io) { Calls::forward(&op, io, prepared_.state.get()); }
  void backward(const O& op, const Io<D>& io) { Calls::backward(&op, io, prepared_.state.get()); }

 private:
  PreparedOp prepared_;
};

}  // namespace lockstep::detail
