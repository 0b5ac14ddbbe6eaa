/// \file
/// Dense on the CPU. Invariant: the kernel stays in the flat buffer's layout (in x out) in all
/// passes: oneDNN reaches the same share of the peak with it as with its own choice, without a
/// copy.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/devices/cpu/onednn.hpp"
#include "lockstep/layers/dense.hpp"

namespace lockstep {
namespace detail {

/// The passes of one inner product at one batch size, with or without a ReLU behind it.
template <class T>
class InnerProductCalls {
 public:
  InnerProductCalls() = default;
  InnerProductCalls(const DenseOp& op, CpuContext<T>& context, std::size_t count, bool relu) {
    if (count == 0) return;
    const auto scope = context.scope();
    onednn::call("dense", op.out(),
                 [&] { prepare(op, context.engine(), static_cast<long>(count), relu); });
  }

  std::size_t scratch_bytes() const {
    return std::max(forward_scratch_.bytes(), backward_scratch_.bytes());
  }

  template <class D>
  void forward(const DenseOp& op, const Io<D>& io) {
    if (io.count == 0) return;
    onednn::call("dense", op.out(), [&] {
      forward_(io.device.stream(), io.scratch, io.x, io.w, io.y,
               op.bias ? io.w + op.kernel_size() : nullptr);
    });
  }

  template <class D>
  void backward(const DenseOp& op, const Io<D>& io) {
    if (io.count == 0) {
      std::fill_n(io.dw, op.kernel_size() + (op.bias ? static_cast<std::size_t>(op.units) : 0),
                  T(0));
      return;
    }
    onednn::call("dense", op.out(), [&] {
      const dnnl::stream& stream = io.device.stream();
      const T* dy = io.dy;
      if (mask_) {
        T* const masked = reinterpret_cast<T*>(io.scratch + masked_);
        mask_(stream, io.scratch, io.y, io.dy, masked);
        dy = masked;
      }
      backward_weights_(stream, io.scratch, io.x, dy, io.dw,
                        op.bias ? io.dw + op.kernel_size() : nullptr);
      if (io.dx != nullptr) backward_data_(stream, io.scratch, io.dx, io.w, dy);
    });
  }

 private:
  [[gnu::cold]] void prepare(const DenseOp& op, const onednn::engine& e, long n, bool relu) {
    using onednn::describe, onednn::Tag, onednn::Call;
    const onednn::InnerProduct p{
        .x = describe<T>({n, op.inputs}, Tag::ab),
        .w = describe<T>({op.units, op.inputs}, Tag::ba),
        .bias = op.bias ? describe<T>({op.units}, Tag::a) : onednn::memory::desc(),
        .y = describe<T>({n, op.units}, Tag::ab)};
    const auto pd = onednn::inner_product_forward(e, p, onednn::attributes(relu));
    onednn::Arguments arguments{{DNNL_ARG_SRC, p.x}, {DNNL_ARG_WEIGHTS, p.w}, {DNNL_ARG_DST, p.y}};
    if (op.bias) arguments.push_back({DNNL_ARG_BIAS, p.bias});
    forward_ = Call(pd, arguments, forward_scratch_);

    const auto hint = onednn::inner_product_forward(e, p, onednn::attributes());
    const auto weights = onednn::inner_product_backward_weights(e, p, hint);
    arguments = {{DNNL_ARG_SRC, p.x}, {DNNL_ARG_DIFF_DST, p.y}, {DNNL_ARG_DIFF_WEIGHTS, p.w}};
    if (op.bias) arguments.push_back({DNNL_ARG_DIFF_BIAS, p.bias});
    backward_weights_ = Call(weights, arguments, backward_scratch_);

    const auto data = onednn::inner_product_backward_data(e, p, hint);
    backward_data_ =
        Call(data, {{DNNL_ARG_DIFF_SRC, p.x}, {DNNL_ARG_WEIGHTS, p.w}, {DNNL_ARG_DIFF_DST, p.y}},
             backward_scratch_);
    if (relu) {
      mask_ =
          onednn::relu_mask<T>(e, static_cast<std::size_t>(n) * op.out().size(), backward_scratch_);
      masked_ = backward_scratch_.add(p.y.get_size());
    }
  }

  onednn::Call forward_, mask_, backward_weights_, backward_data_;
  onednn::Scratch forward_scratch_, backward_scratch_;
  std::size_t masked_ = 0;
};

}  // namespace detail

template <class P>
struct Kernel<DenseOp, BasicCpu<P>> : KernelTraits {
  using D = BasicCpu<P>;
  using Prepared = detail::InnerProductCalls<typename D::real>;
  static constexpr bool keeps_x = true;

  static Prepared prepare(const DenseOp& op, typename D::Context& context, std::size_t count) {
    return Prepared(op, context, count, false);
  }
  [[gnu::noinline]] static void forward(const DenseOp& op, const Io<D>& io, Prepared& prepared) {
    prepared.forward(op, io);
  }
  [[gnu::noinline]] static void backward(const DenseOp& op, const Io<D>& io, Prepared& prepared) {
    prepared.backward(op, io);
  }
};

static_assert(HasKernel<DenseOp, Cpu>);

}  // namespace lockstep
