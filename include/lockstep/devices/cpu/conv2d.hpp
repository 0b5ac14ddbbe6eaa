/// \file
/// Conv2D on the CPU: oneDNN, and loops of our own where they are faster. Invariants: images are
/// NHWC and kernels HWIO outside; inside a pass the kernel is in the layout that oneDNN likes best,
/// copied in scratch (a few microseconds beside milliseconds).
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cpu/conv2d_few_channels.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/devices/cpu/onednn.hpp"
#include "lockstep/devices/cpu/winograd/convolution.hpp"
#include "lockstep/devices/cpu/winograd/kernel_gradient.hpp"
#include "lockstep/layers/conv2d.hpp"

namespace lockstep {
namespace detail {

/// The passes of one convolution at one batch size, with or without a ReLU behind it. If it is
/// `depthwise`, each channel has one filter, and the kernel is height x width x channels.
template <class T>
class ConvolutionCalls {
 public:
  ConvolutionCalls() = default;
  ConvolutionCalls(const Conv2DOp& op, CpuContext<T>& context, std::size_t count, bool relu,
                   bool depthwise = false)
      : kernel_size_(depthwise ? op.kernel_size() / static_cast<std::size_t>(op.filters)
                               : op.kernel_size()) {
    if (count == 0) return;
    const auto scope = context.scope();
    const onednn::Site at{depthwise ? "depthwise_conv2d" : "conv2d", op.out(), context.engine()};
    const auto n = static_cast<std::ptrdiff_t>(count);
    if (!depthwise && WinogradConvolution<T>::fits(op))
      prepare_winograd(op, context.threads(), relu);
    else
      prepare_onednn(op, at, n, context.threads(), relu, depthwise);
    if (!relu) return;
    const auto size = n * static_cast<std::ptrdiff_t>(op.out().size());
    mask_ = onednn::relu_mask(at, {at, onednn::data_type<T>(), {size}, dnnl_a}, backward_scratch_);
    masked_ = backward_scratch_.add(static_cast<std::size_t>(size) * sizeof(T));
  }

  std::size_t scratch_bytes() const {
    return std::max(forward_scratch_.bytes(), backward_scratch_.bytes());
  }

  template <class D>
  void forward(const Conv2DOp& op, const Io<D>& io) {
    if (io.count == 0) return;
    const T* const bias = op.bias ? io.w + kernel_size_ : nullptr;
    if (winograd_)
      winograd_(io.count, io.x, io.w, bias, winograd_relu_, io.y, io.scratch + winograd_room_);
    else
      forward_(io.device.stream(), io.scratch,
               {io.x, pack(pack_forward_, packed_forward_, io), io.y, bias});
  }

  template <class D>
  void backward(const Conv2DOp& op, const Io<D>& io) {
    if (io.count == 0) {
      std::fill_n(io.dw, kernel_size_ + (op.bias ? static_cast<std::size_t>(op.filters) : 0), T(0));
      return;
    }
    const T* dy = io.dy;
    if (mask_ && (io.dx != nullptr || !few_channels_)) {
      T* const masked = reinterpret_cast<T*>(io.scratch + masked_);
      mask_(io.device.stream(), io.scratch, {io.y, io.dy, masked});
      dy = masked;
    }
    gradient_of_weights(op, io, dy);
    if (io.dx != nullptr) gradient_of_input(io, dy);
  }

  /// Writes dw of at least one example; `dy` has gone through the ReLU, if there is one.
  template <class D>
  void gradient_of_weights(const Conv2DOp& op, const Io<D>& io, const T* dy) {
    const dnnl_stream_t stream = io.device.stream();
    T* const db = op.bias ? io.dw + kernel_size_ : nullptr;
    if (few_channels_) {
      few_channels_(op, io.count, io.x, io.dy, mask_ ? io.y : nullptr, io.dw, db,
                    reinterpret_cast<T*>(io.scratch + sums_));
    } else if (winograd_dw_) {
      winograd_dw_(io.count, io.x, dy, io.dw, db, io.scratch + winograd_back_room_);
    } else {
      T* const dw = unpack_ ? reinterpret_cast<T*>(io.scratch + packed_dw_) : io.dw;
      backward_weights_(stream, io.scratch, {io.x, dy, dw, db});
      if (unpack_) unpack_(stream, io.scratch, {dw, io.dw});
    }
  }

  /// Writes dx of at least one example.
  template <class D>
  void gradient_of_input(const Io<D>& io, const T* dy) {
    if (winograd_dx_)
      winograd_dx_(io.count, dy, io.w, nullptr, false, io.dx, io.scratch + winograd_back_room_);
    else
      backward_data_(io.device.stream(), io.scratch,
                     {io.dx, pack(pack_backward_, packed_backward_, io), dy});
  }

 private:
  enum class Pass { forward, weights, data };

  void prepare_winograd(const Conv2DOp& op, int threads, bool relu) {
    winograd_ = {op, WinogradPass::forward, threads, longest_vectors()};
    winograd_dx_ = {op, WinogradPass::input_gradient, threads, longest_vectors()};
    winograd_dw_ = {op, threads, longest_vectors()};
    winograd_relu_ = relu;
    winograd_room_ = forward_scratch_.add(winograd_.scratch_bytes());
    winograd_back_room_ =
        backward_scratch_.add(std::max(winograd_dx_.scratch_bytes(), winograd_dw_.scratch_bytes()));
  }

  [[gnu::noinline, gnu::cold]] void prepare_onednn(const Conv2DOp& op, const onednn::Site& at,
                                                   std::ptrdiff_t n, int threads, bool relu,
                                                   bool depthwise) {
    using onednn::Call, onednn::MemoryDesc, onednn::PrimitiveDesc;
    constexpr dnnl_data_type_t type = onednn::data_type<T>();
    const Window rows = op.rows(), columns = op.columns();
    const auto kernel = [&](dnnl_format_tag_t tag) {
      return depthwise
                 ? MemoryDesc(at, type, {op.filters, 1, 1, op.kernel.height, op.kernel.width}, tag)
                 : MemoryDesc(at, type,
                              {op.filters, op.channels(), op.kernel.height, op.kernel.width}, tag);
    };
    const MemoryDesc any = kernel(dnnl_format_tag_any),
                     plain = kernel(depthwise ? dnnl_hwigo : dnnl_hwio);
    onednn::Convolution c{
        .x = {at, type, {n, op.channels(), op.in[0], op.in[1]}, dnnl_nhwc},
        .w = any,
        .bias = op.bias ? MemoryDesc(at, type, {op.filters}, dnnl_a) : MemoryDesc(),
        .y = {at, type, {n, op.filters, op.out()[0], op.out()[1]}, dnnl_nhwc},
        .strides = {op.strides.height, op.strides.width},
        .dilates = {op.dilation.height - 1, op.dilation.width - 1},
        .before = {rows.before(), columns.before()},
        .after = {rows.after(), columns.after()}};

    const PrimitiveDesc hint = onednn::convolution_forward(at, c, false);
    // make() with oneDNN's free choice of the kernel's layout, unless only the plain one is fast.
    const auto fastest = [&](Pass pass) {
      const auto make = [&](const MemoryDesc& layout) {
        c.w = layout;
        return pass == Pass::forward   ? onednn::convolution_forward(at, c, relu)
               : pass == Pass::weights ? onednn::convolution_backward_weights(at, c, hint)
                                       : onednn::convolution_backward_data(at, c, hint);
      };
      if (pass == Pass::weights && !depthwise && strided_pointwise_with_tail(op))
        return make(plain);
      PrimitiveDesc free = make(any);
      if (!onednn::is_slow(free)) return free;
      PrimitiveDesc fixed = make(plain);
      return onednn::is_slow(fixed) ? std::move(free) : std::move(fixed);
    };

    const PrimitiveDesc pd = fastest(Pass::forward);
    const MemoryDesc w(at, pd, dnnl_query_weights_md);
    forward_ = Call(
        at, pd,
        {{DNNL_ARG_SRC, c.x}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DST, c.y}, {DNNL_ARG_BIAS, c.bias}},
        forward_scratch_);
    pack_forward_ = layout_change(at, plain, w, packed_forward_, forward_scratch_);

    if (!depthwise && FewChannelsGradient<T>::fits(op)) {
      few_channels_ = FewChannelsGradient<T>(op, threads);
      sums_ = backward_scratch_.add(few_channels_.scratch_bytes(op));
    } else {
      const PrimitiveDesc weights = fastest(Pass::weights);
      const MemoryDesc dw(at, weights, dnnl_query_diff_weights_md);
      backward_weights_ = Call(at, weights,
                               {{DNNL_ARG_SRC, c.x},
                                {DNNL_ARG_DIFF_DST, c.y},
                                {DNNL_ARG_DIFF_WEIGHTS, dw},
                                {DNNL_ARG_DIFF_BIAS, c.bias}},
                               backward_scratch_);
      unpack_ = layout_change(at, dw, plain, packed_dw_, backward_scratch_);
    }

    const PrimitiveDesc data = fastest(Pass::data);
    const MemoryDesc w_back(at, data, dnnl_query_weights_md);
    backward_data_ = Call(
        at, data, {{DNNL_ARG_DIFF_SRC, c.x}, {DNNL_ARG_WEIGHTS, w_back}, {DNNL_ARG_DIFF_DST, c.y}},
        backward_scratch_);
    pack_backward_ = layout_change(at, plain, w_back, packed_backward_, backward_scratch_);
  }

  /// For these oneDNN (2.6 and 3.2, AVX2) gives wrong weight gradients in the layout of its choice;
  /// in the plain one it multiplies matrices, and is right.
  static constexpr bool strided_pointwise_with_tail(const Conv2DOp& op) {
    return op.kernel == KernelSize{1, 1} && op.strides != Strides{1, 1} && op.channels() % 16 != 0;
  }

  /// A copy from layout to layout with the packed side in scratch; an empty call if they are equal.
  [[gnu::noinline, gnu::cold]] static onednn::Call layout_change(const onednn::Site& at,
                                                                 const onednn::MemoryDesc& from,
                                                                 const onednn::MemoryDesc& to,
                                                                 std::size_t& packed,
                                                                 onednn::Scratch& scratch) {
    if (from == to) return {};
    packed = scratch.add(std::max(from.bytes(), to.bytes()));
    return onednn::reorder(at, from, to, scratch);
  }

  template <class D>
  static const T* pack(onednn::Call& copy, std::size_t offset, const Io<D>& io) {
    if (!copy) return io.w;
    copy(io.device.stream(), io.scratch, {io.w, io.scratch + offset});
    return reinterpret_cast<const T*>(io.scratch + offset);
  }

  FewChannelsGradient<T> few_channels_;
  WinogradConvolution<T> winograd_, winograd_dx_;
  WinogradKernelGradient<T> winograd_dw_;
  bool winograd_relu_ = false;
  std::size_t winograd_room_ = 0, winograd_back_room_ = 0;
  onednn::Call pack_forward_, forward_, mask_, backward_weights_, unpack_, pack_backward_,
      backward_data_;
  onednn::Scratch forward_scratch_, backward_scratch_;
  std::size_t kernel_size_ = 0;  // weights before the bias
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
