/// \file
/// Conv2D on the CPU. Invariants: images are NHWC and kernels HWIO outside; inside a pass the
/// kernel is in the layout that oneDNN likes best, copied in scratch (a few microseconds beside
/// milliseconds).
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cpu/conv2d_few_channels.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/devices/cpu/onednn.hpp"
#include "lockstep/layers/conv2d.hpp"

namespace lockstep {
namespace detail {

/// The passes of one convolution at one batch size, with or without a ReLU behind it.
template <class T>
class ConvolutionCalls {
 public:
  ConvolutionCalls() = default;
  ConvolutionCalls(const Conv2DOp& op, CpuContext<T>& context, std::size_t count, bool relu) {
    if (count == 0) return;
    const auto scope = context.scope();
    onednn::call("conv2d", op.out(), [&] {
      prepare(op, context.engine(), static_cast<long>(count), context.threads(), relu);
    });
  }

  std::size_t scratch_bytes() const {
    return std::max(forward_scratch_.bytes(), backward_scratch_.bytes());
  }

  template <class D>
  void forward(const Conv2DOp& op, const Io<D>& io) {
    if (io.count == 0) return;
    onednn::call("conv2d", op.out(), [&] {
      const dnnl::stream& stream = io.device.stream();
      forward_(stream, io.scratch, io.x, pack(pack_forward_, packed_forward_, io), io.y,
               op.bias ? io.w + op.kernel_size() : nullptr);
    });
  }

  template <class D>
  void backward(const Conv2DOp& op, const Io<D>& io) {
    if (io.count == 0) {
      std::fill_n(io.dw, op.kernel_size() + (op.bias ? static_cast<std::size_t>(op.filters) : 0),
                  T(0));
      return;
    }
    onednn::call("conv2d", op.out(), [&] {
      const dnnl::stream& stream = io.device.stream();
      const T* dy = io.dy;
      if (mask_ && (io.dx != nullptr || !few_channels_)) {
        T* const masked = reinterpret_cast<T*>(io.scratch + masked_);
        mask_(stream, io.scratch, io.y, io.dy, masked);
        dy = masked;
      }
      if (few_channels_) {
        few_channels_(op, io.count, io.x, io.dy, mask_ ? io.y : nullptr, io.dw,
                      op.bias ? io.dw + op.kernel_size() : nullptr,
                      reinterpret_cast<T*>(io.scratch + sums_));
      } else {
        T* const dw = unpack_ ? reinterpret_cast<T*>(io.scratch + packed_dw_) : io.dw;
        backward_weights_(stream, io.scratch, io.x, dy, dw,
                          op.bias ? io.dw + op.kernel_size() : nullptr);
        if (unpack_) unpack_(stream, io.scratch, dw, io.dw);
      }
      if (io.dx != nullptr)
        backward_data_(stream, io.scratch, io.dx, pack(pack_backward_, packed_backward_, io), dy);
    });
  }

 private:
  [[gnu::cold]] void prepare(const Conv2DOp& op, const onednn::engine& e, long n, int threads,
                             bool relu) {
    using onednn::describe, onednn::Tag, onednn::Call, onednn::PrimitiveDesc;
    const Window rows = op.rows(), columns = op.columns();
    const onednn::memory::dims w_dims{op.filters, op.channels(), op.kernel.height, op.kernel.width};
    const auto plain = describe<T>(w_dims, Tag::hwio);
    onednn::Convolution c{
        .x = describe<T>({n, op.channels(), op.in[0], op.in[1]}, Tag::nhwc),
        .w = describe<T>(w_dims, Tag::any),
        .bias = op.bias ? describe<T>({op.filters}, Tag::a) : onednn::memory::desc(),
        .y = describe<T>({n, op.filters, op.out()[0], op.out()[1]}, Tag::nhwc),
        .strides = {op.strides.height, op.strides.width},
        .dilates = {op.dilation.height - 1, op.dilation.width - 1},
        .before = {rows.before(), columns.before()},
        .after = {rows.after(), columns.after()}};
    const auto any = describe<T>(w_dims, Tag::any);

    const auto pd = fastest(c, any, plain, [&]() -> PrimitiveDesc {
      return onednn::convolution_forward(e, c, onednn::attributes(relu));
    });
    const auto w = pd.query_md(dnnl::query::weights_md);
    onednn::Arguments arguments{{DNNL_ARG_SRC, c.x}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DST, c.y}};
    if (op.bias) arguments.push_back({DNNL_ARG_BIAS, c.bias});
    forward_ = Call(pd, arguments, forward_scratch_);
    pack_forward_ = layout_change(e, plain, w, packed_forward_, forward_scratch_);

    c.w = any;
    const auto hint = onednn::convolution_forward(e, c, onednn::attributes());
    c.w = plain;
    if (FewChannelsGradient<T>::fits(op)) {
      few_channels_ = FewChannelsGradient<T>(op, threads);
      sums_ = backward_scratch_.add(few_channels_.scratch_bytes(op));
    } else {
      const auto make = [&]() -> PrimitiveDesc {
        return onednn::convolution_backward_weights(e, c, hint);
      };
      const auto weights = strided_pointwise_with_tail(op) ? make() : fastest(c, any, plain, make);
      const auto dw = weights.query_md(dnnl::query::diff_weights_md);
      arguments = {{DNNL_ARG_SRC, c.x}, {DNNL_ARG_DIFF_DST, c.y}, {DNNL_ARG_DIFF_WEIGHTS, dw}};
      if (op.bias) arguments.push_back({DNNL_ARG_DIFF_BIAS, c.bias});
      backward_weights_ = Call(weights, arguments, backward_scratch_);
      unpack_ = layout_change(e, dw, plain, packed_dw_, backward_scratch_);
    }

    const auto data = fastest(c, any, plain, [&]() -> PrimitiveDesc {
      return onednn::convolution_backward_data(e, c, hint);
    });
    const auto w_back = data.query_md(dnnl::query::weights_md);
    backward_data_ =
        Call(data, {{DNNL_ARG_DIFF_SRC, c.x}, {DNNL_ARG_WEIGHTS, w_back}, {DNNL_ARG_DIFF_DST, c.y}},
             backward_scratch_);
    pack_backward_ = layout_change(e, plain, w_back, packed_backward_, backward_scratch_);

    if (relu) {
      mask_ =
          onednn::relu_mask<T>(e, static_cast<std::size_t>(n) * op.out().size(), backward_scratch_);
      masked_ = backward_scratch_.add(c.y.get_size());
    }
  }

  /// make() with oneDNN's free choice of the kernel's layout, unless only the plain one is fast.
  template <class Make>
  static onednn::PrimitiveDesc fastest(onednn::Convolution& c, const onednn::memory::desc& any,
                                       const onednn::memory::desc& plain, const Make& make) {
    c.w = any;
    const onednn::PrimitiveDesc free = make();
    if (!onednn::is_slow(free)) return free;
    c.w = plain;
    const onednn::PrimitiveDesc fixed = make();
    return onednn::is_slow(fixed) ? free : fixed;
  }

  /// For these oneDNN (2.6 and 3.2, AVX2) gives wrong weight gradients in the layout of its choice;
  /// in the plain one it multiplies matrices, and is right.
  static constexpr bool strided_pointwise_with_tail(const Conv2DOp& op) {
    return op.kernel == KernelSize{1, 1} && op.strides != Strides{1, 1} && op.channels() % 16 != 0;
  }

  /// A copy from layout to layout with the packed side in scratch; an empty call if they are equal.
  [[gnu::noinline, gnu::cold]] static onednn::Call layout_change(const onednn::engine& e,
                                                                 const onednn::memory::desc& from,
                                                                 const onednn::memory::desc& to,
                                                                 std::size_t& packed,
                                                                 onednn::Scratch& scratch) {
    if (from == to) return {};
    packed = scratch.add(std::max(from.get_size(), to.get_size()));
    return onednn::reorder(e, from, to, scratch);
  }

  template <class D>
  static const T* pack(onednn::Call& copy, std::size_t offset, const Io<D>& io) {
    if (!copy) return io.w;
    copy(io.device.stream(), io.scratch, io.w, io.scratch + offset);
    return reinterpret_cast<const T*>(io.scratch + offset);
  }

  FewChannelsGradient<T> few_channels_;
  onednn::Call pack_forward_, forward_, mask_, backward_weights_, unpack_, pack_backward_,
      backward_data_;
  onednn::Scratch forward_scratch_, backward_scratch_;
  std::size_t packed_forward_ = 0, packed_backward_ = 0, packed_dw_ = 0, masked_ = 0, sums_ = 0;
};

}  // namespace detail

template <class P>
struct Kernel<Conv2DOp, BasicCpu<P>> : KernelTraits {
  using D = BasicCpu<P>;
  using Prepared = detail::ConvolutionCalls<typename D::real>;
  static constexpr bool keeps_x = true;

  static Prepared prepare(const Conv2DOp& op, typename D::Context& context, std::size_t count) {
    return Prepared(op, context, count, false);
  }
  [[gnu::noinline]] static void forward(const Conv2DOp& op, const Io<D>& io, Prepared& prepared) {
    prepared.forward(op, io);
  }
  [[gnu::noinline]] static void backward(const Conv2DOp& op, const Io<D>& io, Prepared& prepared) {
    prepared.backward(op, io);
  }
};

static_assert(HasKernel<Conv2DOp, Cpu>);

}  // namespace lockstep
