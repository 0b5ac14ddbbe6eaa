#pragma once

#include "lockstep/devices/cpu/conv2d.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/devices/cpu/column_sums.hpp"
#include "lockstep/devices/cpu/conv2d_few_channels.hpp"
#include "lockstep/devices/cpu/elements.hpp"
#include "lockstep/devices/cpu/onednn.hpp"
#include "lockstep/devices/cpu/winograd/convolution.hpp"
#include "lockstep/devices/cpu/winograd/kernel_gradient.hpp"

namespace lockstep::detail {

/// The prepared passes of one convolution at one batch size, optionally followed by a ReLU. `name`
/// is that of the layer, for messages.
template <class D, class Op>
class ConvolutionCalls {
 public:
  using T = typename D::real;
  using A = ActivationOf<D>;
  static constexpr bool mixed = !std::is_same_v<A, T>;
  static constexpr bool over_images = std::is_same_v<Op, Conv2DOp>;  // else over volumes

  ConvolutionCalls() = default;
  /// With `Only`, other passes must not be called: ForwardOnly, or InputGradientOnly.
  template <class... Only>
  ConvolutionCalls(const Op& op, CpuContext<T>& context, std::size_t count, bool relu,
                   const char* name = "conv2d", Only... only)
      : kernel_size_(op.kernel_size()), relu_(relu) {
    if (count == 0) return;
    const auto scope = context.scope();
    const onednn::Site at{name, op.out(), context.engine()};
    const auto n = static_cast<std::ptrdiff_t>(count);
    if constexpr (over_images && !mixed)
      if (WinogradConvolution<T>::fits(op)) prepare_winograd(op, context.threads(), only...);
    if (!winograd_) prepare_onednn(op, at, n, context.threads(), relu, only...);
    if constexpr (sizeof...(Only) == 0)
      if (relu) prepare_mask(op, at, n);
  }

  std::size_t scratch_bytes() const {
    return std::max({forward_scratch_.bytes(), relu_scratch_.bytes(), backward_scratch_.bytes()});
  }

  void forward(const Op& op, const Io<D>& io) {
    if (io.step.count == 0) return;
    const T* const bias = op.bias ? io.w + kernel_size_ : nullptr;
    if constexpr (over_images && !mixed)
      if (winograd_)
        return winograd_(io.step.count, io.x[0], io.w, bias, relu_, io.y,
                         io.scratch + winograd_scratch_);
    const dnnl_stream_t stream = io.device.stream();
    const int threads = io.device.threads();
    if (relu_forward_ && are_moderate(threads, io.x[0], io.step.count * op.in.size()) &&
        are_moderate(threads, io.w, kernel_size_ + (op.bias ? filters_of(op) : 0)))
      return relu_forward_(stream, io.scratch,
                           {io.x[0], pack_relu_.pack(stream, io.scratch, io.w), io.y, bias});
    forward_(stream, io.scratch,
             {io.x[0], pack_forward_.pack(stream, io.scratch, io.w), io.y, bias});
    if (relu_)
      rectify(threads, io.y, io.y, io.step.count * op.out().size(),
              std::numeric_limits<float>::infinity());
  }

  void backward(const Op& op, const Io<D>& io) {
    if (io.step.count == 0) {
      if (io.dw != nullptr)
        std::fill_n(io.dw, kernel_size_ + (op.bias ? static_cast<std::size_t>(op.filters) : 0),
                    T(0));
      return;
    }
    const A* dy = io.dy;
    if (mask_ && (io.dx[0] != nullptr || !few_channels_)) {
      A* const masked = reinterpret_cast<A*>(io.scratch + masked_);
      mask_(io.device.stream(), io.scratch, {io.y, io.dy, masked});
      dy = masked;
    }
    gradient_of_weights(op, io, dy);
    if (io.dx[0] != nullptr) gradient_of_input(io, dy);
  }

  /// Writes dw and db, unless dw is null, for at least one example. `dy` is masked already if there
  /// is a ReLU.
  void gradient_of_weights(const Op& op, const Io<D>& io, const A* dy) {
    if (io.dw == nullptr) return;
    const dnnl_stream_t stream = io.device.stream();
    T* const db = op.bias ? io.dw + kernel_size_ : nullptr;
    if constexpr (over_images && !mixed) {
      if (few_channels_)
        return few_channels_(op, io.step.count, io.x[0], io.dy, mask_ ? io.y : nullptr, io.dw, db,
                             reinterpret_cast<T*>(io.scratch + sums_));
      if (winograd_dw_)
        return winograd_dw_(io.step.count, io.x[0], dy, io.dw, db,
                            io.scratch + winograd_backward_scratch_);
    }
    // In bfloat16 oneDNN 2.6 multiplies parts of its scratchpad that it has not written by 0, and
    // leaves the gradient of unused taps unwritten. The masked dy, which is the last buffer in
    // scratch, must be kept.
    if constexpr (mixed) std::memset(io.scratch, 0, mask_ ? masked_ : backward_scratch_.bytes());
    if (has_unused_taps_) std::fill_n(io.dw, kernel_size_, T(0));
    void* const dw = unpack_.destination(io.scratch, io.dw);
    backward_weights_(stream, io.scratch, {io.x[0], dy, dw});
    unpack_.unpack(stream, io.scratch, io.dw);
    if (db != nullptr) {
      const auto filters = static_cast<std::size_t>(op.filters);
      column_sums(io.device.threads(), dy, io.step.count * op.out().size() / filters, filters, db,
                  io.scratch + bias_sums_);
    }
  }

  /// Writes dx for at least one example; `dy` as in gradient_of_weights.
  void gradient_of_input(const Io<D>& io, const A* dy) {
    if constexpr (over_images && !mixed)
      if (winograd_dx_)
        return winograd_dx_(io.step.count, dy, io.w, nullptr, false, io.dx[0],
                            io.scratch + winograd_backward_scratch_);
    const dnnl_stream_t stream = io.device.stream();
    backward_data_(stream, io.scratch,
                   {io.dx[0], pack_backward_.pack(stream, io.scratch, io.w), dy});
  }

 private:
  enum class Pass { forward, relu_forward, weights, data };
  template <class... Only>
  static constexpr bool prepares_input_gradient = !(std::is_same_v<Only, ForwardOnly> || ...);
  static std::size_t filters_of(const Op& op) { return static_cast<std::size_t>(op.filters); }

  [[gnu::noinline, gnu::cold]] void prepare_mask(const Op& op, const onednn::Site& at,
                                                 std::ptrdiff_t n) {
    const auto size = n * static_cast<std::ptrdiff_t>(op.out().size());
    mask_ = onednn::relu_mask(at, {at, onednn::data_type<A>(), {size}, dnnl_a}, backward_scratch_);
    masked_ = backward_scratch_.add(static_cast<std::size_t>(size) * sizeof(A));
  }

  /// Sets up Winograd's transforms for all passes. Both backward passes use the same scratch, one
  /// after the other.
  template <class... Only>
  void prepare_winograd(const Op& op, int threads, Only...) {
    winograd_ = {op, WinogradPass::forward, threads, longest_vectors()};
    winograd_scratch_ = forward_scratch_.add(winograd_.scratch_bytes());
    std::size_t backward = 0;
    if constexpr (prepares_input_gradient<Only...>) {
      winograd_dx_ = {op, WinogradPass::input_gradient, threads, longest_vectors()};
      backward = winograd_dx_.scratch_bytes();
    }
    if constexpr (sizeof...(Only) == 0) {
      winograd_dw_ = {op, threads, longest_vectors()};
      backward = std::max(backward, winograd_dw_.scratch_bytes());
    }
    winograd_backward_scratch_ = backward_scratch_.add(backward);
  }

  template <class... Only>
  [[gnu::noinline, gnu::cold]] void prepare_onednn(const Op& op, const onednn::Site& at,
                                                   std::ptrdiff_t n, [[maybe_unused]] int threads,
                                                   bool relu, Only...) {
    using onednn::Call, onednn::MemoryDesc, onednn::PrimitiveDesc;
    constexpr dnnl_data_type_t type = onednn::data_type<A>(), real = onednn::data_type<T>();
    const dnnl_format_tag_t in_order = kernel_order(op.groups > 1);
    const auto kernel = [&](dnnl_data_type_t t, dnnl_format_tag_t tag) {
      return op.groups > 1 ? kernel_desc(at, op, t, tag, op.groups, op.group_filters())
                           : kernel_desc(at, op, t, tag, op.filters);
    };
    const MemoryDesc plain = kernel(real, in_order);
    onednn::Convolution c{
        .x = values_desc(at, n, op.in, type),
        .w = kernel(type, dnnl_format_tag_any),
        .bias = op.bias ? MemoryDesc(at, real, {op.filters}, dnnl_a) : MemoryDesc(),
        .y = values_desc(at, n, op.out(), type),
        .strides = {},
        .dilates = {},
        .before = {},
        .after = {}};
    for (std::size_t axis = 0; const Window& w : windows(op)) {
      c.strides[axis] = w.stride;
      c.dilates[axis] = w.dilation - 1;
      c.before[axis] = w.before();
      c.after[axis++] = w.after();
    }

    const PrimitiveDesc hint = onednn::convolution_forward(at, c, false, rejected_for_forward(op));
    // oneDNN chooses the kernel's layout, unless that ends in its reference loops and the plain
    // layout does not.
    const auto fastest = [&]<Pass pass>(Constant<pass>) {
      const auto make = [&](dnnl_format_tag_t tag) {
        c.w = kernel(pass == Pass::weights ? real : type, tag);
        if constexpr (pass == Pass::weights)
          return onednn::convolution_backward_weights(at, c, hint, rejected_for_weights(op));
        else if constexpr (pass == Pass::data)
          return onednn::convolution_backward_data(at, c, hint, rejected_for_input(op));
        else
          return onednn::convolution_forward(at, c, pass == Pass::relu_forward,
                                             rejected_for_forward(op));
      };
      if (pass == Pass::weights && !is_depthwise(op) && strided_pointwise_with_tail(op))
        return make(in_order);
      PrimitiveDesc free = make(dnnl_format_tag_any);
      if (!onednn::is_slow(free)) return free;
      PrimitiveDesc fixed = make(in_order);
      return onednn::is_slow(fixed) ? std::move(free) : std::move(fixed);
    };

    // Forward: x, packed kernel, bias -> y.
    const auto prepare_forward = [&](auto pass, Call& call, onednn::LayoutChange& pack,
                                     onednn::Scratch& scratch) {
      const PrimitiveDesc pd = fastest(pass);
      const MemoryDesc w(at, pd, dnnl_query_weights_md);
      call = Call(at, pd,
                  {{DNNL_ARG_SRC, c.x},
                   {DNNL_ARG_WEIGHTS, w},
                   {DNNL_ARG_DST, c.y},
                   {DNNL_ARG_BIAS, c.bias}},
                  scratch);
      pack = onednn::LayoutChange(at, plain, w, scratch);
    };
    prepare_forward(Constant<Pass::forward>{}, forward_, pack_forward_, forward_scratch_);
    // Our own ReLU reads and writes y, the check reads x and the kernel.
    const std::size_t count = static_cast<std::size_t>(n);
    if (relu && count * op.in.size() + kernel_size_ < 2 * count * op.out().size())
      prepare_forward(Constant<Pass::relu_forward>{}, relu_forward_, pack_relu_, relu_scratch_);

    // Kernel gradient: x, dy -> dw, unpacked; the bias gradient is a column sum of dy.
    if constexpr (sizeof...(Only) > 0) {
    } else if (!prepare_few_channels(op, threads)) {
      const PrimitiveDesc weights = fastest(Constant<Pass::weights>{});
      const MemoryDesc dw(at, weights, dnnl_query_diff_weights_md);
      backward_weights_ = Call(
          at, weights, {{DNNL_ARG_SRC, c.x}, {DNNL_ARG_DIFF_DST, c.y}, {DNNL_ARG_DIFF_WEIGHTS, dw}},
          backward_scratch_);
      bias_sums_ =
          backward_scratch_.add(column_sums_bytes(threads, static_cast<std::size_t>(op.filters)));
      unpack_ = onednn::LayoutChange(at, dw, plain, backward_scratch_);
      has_unused_taps_ = mixed && !uses_all_taps(op);
    }

    // Input gradient: dy, packed kernel -> dx.
    if constexpr (prepares_input_gradient<Only...>) {
      const PrimitiveDesc data = fastest(Constant<Pass::data>{});
      const MemoryDesc w_back(at, data, dnnl_query_weights_md);
      backward_data_ =
          Call(at, data,
               {{DNNL_ARG_DIFF_SRC, c.x}, {DNNL_ARG_WEIGHTS, w_back}, {DNNL_ARG_DIFF_DST, c.y}},
               backward_scratch_);
      pack_backward_ = onednn::LayoutChange(at, plain, w_back, backward_scratch_);
    }
  }

  /// Whether our own loops compute the kernel gradient.
  bool prepare_few_channels([[maybe_unused]] const Op& op, [[maybe_unused]] int threads) {
    if constexpr (over_images && !mixed) {
      if (!FewChannelsGradient<T>::fits(op)) return false;
      few_channels_ = FewChannelsGradient<T>(op, threads);
      sums_ = backward_scratch_.add(few_channels_.scratch_bytes(op));
      return true;
    } else {
      return false;
    }
  }

  /// The window along each axis.
  static constexpr auto windows(const Op& op) {
    if constexpr (over_images)
      return std::array{op.rows(), op.columns()};
    else
      return std::array{op.depths(), op.rows(), op.columns()};
  }
  /// The order of the kernel's axes in memory.
  static constexpr dnnl_format_tag_t kernel_order(bool grouped) {
    if (over_images) return grouped ? dnnl_hwigo : dnnl_hwio;
    return grouped ? dnnl_dhwigo : dnnl_dhwio;
  }
  /// The kernel; `first` are the groups, if there are several, and the filters of one.
  static onednn::MemoryDesc kernel_desc(const onednn::Site& at, const Op& op, dnnl_data_type_t type,
                                        dnnl_format_tag_t tag, auto... first) {
    if constexpr (over_images)
      return {at, type, {first..., op.group_channels(), op.kernel.height, op.kernel.width}, tag};
    else
      return {at,
              type,
              {first..., op.group_channels(), op.kernel.depth, op.kernel.height, op.kernel.width},
              tag};
  }
  /// `n` images or volumes of shape `s`.
  static onednn::MemoryDesc values_desc(const onednn::Site& at, std::ptrdiff_t n, const Shape& s,
                                        dnnl_data_type_t type) {
    if constexpr (over_images)
      return {at, type, {n, s[2], s[0], s[1]}, dnnl_nhwc};
    else
      return {at, type, {n, s[3], s[0], s[1], s[2]}, dnnl_ndhwc};
  }
  static constexpr bool is_pointwise(const Op& op) {
    for (const Window& w : windows(op))
      if (w.kernel != 1) return false;
    return true;
  }
  static constexpr bool is_strided(const Op& op) {
    for (const Window& w : windows(op))
      if (w.stride != 1) return true;
    return false;
  }
  static constexpr bool is_dilated(const Op& op) {
    for (const Window& w : windows(op))
      if (w.dilation != 1) return true;
    return false;
  }

  /// A bug of oneDNN 2.6 and 3.2 with AVX2: for these convolutions the weight gradients are wrong
  /// in oneDNN's preferred layout. In the plain layout it uses a GEMM, which is correct.
  static constexpr bool strided_pointwise_with_tail(const Op& op) {
    return is_pointwise(op) && is_strided(op) && op.group_channels() % 16 != 0;
  }
  /// Whether each channel is a group with one filter.
  static constexpr bool is_depthwise(const Op& op) {
    return op.groups > 1 && op.groups == op.channels() && op.groups == op.filters;
  }

  /// Implementations to avoid in forward. A bug of oneDNN 2.6's AMX code in bfloat16: with strides
  /// other than 1, some rows are wrong if two threads share an image.
  static onednn::Reject rejected_for_forward(const Op& op) {
    if (!is_strided(op)) return onednn::reject_none;
    return [](std::string_view name) { return name.starts_with("brgconv:avx512_core_amx"); };
  }
  /// Implementations to avoid for the weight gradient. A bug of oneDNN 2.6's AMX code in bfloat16:
  /// channels beyond the last whole block of 16 are wrong.
  /// Its AVX-512 code reads beyond the images if the kernel is dilated. That of depthwise
  /// convolutions is wrong then, for any number of channels.
  static onednn::Reject rejected_for_weights(const Op& op) {
    if (is_depthwise(op) && is_dilated(op))
      return [](std::string_view name) {
        return name.starts_with("jit:avx512_core_amx") || name.starts_with("jit_bf16:") ||
               name == "jit_dw:avx512_core_bf16";
      };
    if (op.group_channels() % 16 == 0) return onednn::reject_none;
    if (is_dilated(op))
      return [](std::string_view name) {
        return name.starts_with("jit:avx512_core_amx") || name.starts_with("jit_bf16:");
      };
    if (op.group_channels() <= 32) return onednn::reject_none;
    return [](std::string_view name) { return name.starts_with("jit:avx512_core_amx"); };
  }
  /// Implementations to avoid for the input gradient. A bug of oneDNN 2.6's AVX-512 code in
  /// bfloat16: with an odd number of filters, 1 x 1 kernels are wrong for some numbers of pixels.
  static onednn::Reject rejected_for_input(const Op& op) {
    if (!is_pointwise(op) || op.group_filters() % 2 == 0) return onednn::reject_none;
    return [](std::string_view name) { return name.starts_with("jit_bf16_1x1"); };
  }
  /// Whether each kernel tap reads at least one pixel; a tap that always falls into the padding
  /// does not. In bfloat16 oneDNN does not initialize the gradient of such taps.
  static bool uses_all_taps(const Op& op) {
    for (const Window& w : windows(op))
      for (int tap = 0; tap < w.kernel; ++tap) {
        int at = tap * w.dilation - w.before(), left = w.out();
        for (; left > 0 && (at < 0 || at >= w.in); --left) at += w.stride;
        if (left == 0) return false;
      }
    return true;
  }

  // Alternatives to oneDNN; each converts to false if it is not in use.
  FewChannelsGradient<T> few_channels_;
  WinogradConvolution<T> winograd_, winograd_dx_;
  WinogradKernelGradient<T> winograd_dw_;
  std::size_t winograd_scratch_ = 0, winograd_backward_scratch_ = 0;
  onednn::Call forward_, relu_forward_, mask_, backward_weights_, backward_data_;
  onednn::LayoutChange pack_forward_, pack_relu_, unpack_, pack_backward_;
  onednn::Scratch forward_scratch_, relu_scratch_, backward_scratch_;
  std::size_t kernel_size_ = 0;                        // elements of w before the bias
  std::size_t masked_ = 0, sums_ = 0, bias_sums_ = 0;  // offsets in scratch, bytes
  bool has_unused_taps_ = false, relu_ = false;
};

}  // namespace lockstep::detail
