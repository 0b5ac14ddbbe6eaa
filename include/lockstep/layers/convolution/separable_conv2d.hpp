/// \file
/// A depthwise convolution followed by a 1x1 convolution, as one layer.
///
///     forward    x --depthwise--> hidden --1x1--> y       hidden: saved for backward
///     backward   dx <--depthwise-- dhidden <--1x1-- dy    dhidden: in scratch
///
/// Invariant: the op has no separate kernel; on each device the kernels of the two convolutions do
/// the work.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/layers/convolution/depthwise_conv2d.hpp"
#include "lockstep/layers/inner_kernel.hpp"

namespace lockstep {

/// y = pointwise(depthwise(x)).
struct SeparableConv2DOp {
  static constexpr std::string_view members = "depthwise filters use_bias";
  DepthwiseConv2DOp depthwise;  // has no bias
  int filters = 1;
  bool bias = true;

  constexpr Conv2DOp pointwise() const {
    return {depthwise.out(), filters, {1, 1}, {1, 1}, {1, 1}, Padding::valid, bias};
  }
  constexpr Shape out() const { return pointwise().out(); }
  constexpr double flops() const { return depthwise.flops() + pointwise().flops(); }
  constexpr std::size_t weights() const { return depthwise.weights() + pointwise().weights(); }
  bool operator==(const SeparableConv2DOp&) const = default;
};

template <class D>
  requires HasKernel<DepthwiseConv2DOp, D> && HasKernel<Conv2DOp, D>
struct Kernel<SeparableConv2DOp, D> : KernelTraits {
  using library_kernel = std::conditional_t<
      detail::of_library<DepthwiseConv2DOp, D> && detail::of_library<Conv2DOp, D>, Kernel, void>;
  using Depthwise = Kernel<DepthwiseConv2DOp, D>;
  using Pointwise = Kernel<Conv2DOp, D>;
  using Value = std::remove_pointer_t<decltype(Io<D>::y)>;
  static_assert(Depthwise::saved(DepthwiseConv2DOp{}) == 0 && Pointwise::saved(Conv2DOp{}) == 0);
  static constexpr bool keeps_x = Depthwise::keeps_x, keeps_y = Pointwise::keeps_y;
  static constexpr std::size_t saved(const SeparableConv2DOp& op) {
    return op.depthwise.out().size() * sizeof(Value);
  }

  struct Prepared {
    detail::InnerKernel<DepthwiseConv2DOp, D> depthwise;
    detail::InnerKernel<Conv2DOp, D> pointwise;
    std::size_t hidden_bytes = 0;     // of the value between the two convolutions
    std::size_t gradient_offset = 0;  // of its gradient, in scratch
    std::size_t scratch_bytes() const { return gradient_offset + hidden_bytes; }
  };
  template <std::same_as<ForwardOnly>... Only>
  static Prepared prepare(const SeparableConv2DOp& op, typename D::Context& context,
                          std::size_t count, Only... only) {
    Prepared p{{op.depthwise, context, count, only...}, {op.pointwise(), context, count, only...}};
    p.hidden_bytes = count * saved(op);
    p.gradient_offset =
        (std::max(p.depthwise.scratch_bytes(), p.pointwise.scratch_bytes()) + 63) / 64 * 64;
    return p;
  }

  static void forward(const SeparableConv2DOp& op, const Io<D>& io, Prepared& prepared) {
    Io<D> first = io;
    first.y = reinterpret_cast<Value*>(io.saved);
    prepared.depthwise.forward(op.depthwise, first);
    const Value* const hidden = first.y;
    prepared.pointwise.forward(op.pointwise(), pointwise_io(op, io, &hidden));
  }
  static void backward(const SeparableConv2DOp& op, const Io<D>& io, Prepared& prepared) {
    Io<D> first = io;
    first.y = reinterpret_cast<Value*>(io.saved);
    first.dy = reinterpret_cast<Value*>(io.scratch + prepared.gradient_offset);
    const Value* const hidden = first.y;
    Io<D> second = pointwise_io(op, io, &hidden);
    second.dx = &first.dy;
    prepared.pointwise.backward(op.pointwise(), second);
    prepared.depthwise.backward(op.depthwise, first);
  }

 private:
  /// The arguments of the 1x1 convolution: reads the hidden value and the weights after the
  /// depthwise kernel.
  static Io<D> pointwise_io(const SeparableConv2DOp& op, Io<D> io, const Value* const* hidden) {
    io.x = hidden;
    io.w += op.depthwise.kernel_size();
    io.dw += op.depthwise.kernel_size();
    return io;
  }
};

namespace detail {
template <class O>
inline constexpr bool is_separable_option =
    is_depthwise_option<O> || is_rule_for<O, PointwiseInitializer> ||
    is_rule_for<O, PointwiseRegularizer>;

template <int Filters, DepthwiseConv2DOp Numbers, class... Options>
struct CheckSeparableConv2D {
  static_assert(sizeof(CheckOneActivation<Options...>) > 0);
  static_assert(Filters > 0 && Numbers.kernel.height > 0 && Numbers.kernel.width > 0 &&
                    Numbers.strides.height > 0 && Numbers.strides.width > 0 &&
                    Numbers.dilation.height > 0 && Numbers.dilation.width > 0 &&
                    Numbers.multiplier > 0,
                "lockstep::SeparableConv2D: filters, kernel size, strides, dilation and depth "
                "multiplier must be at least 1; write SeparableConv2D<filters, 3>");
  static_assert(
      (is_separable_option<Options> && ...),
      "lockstep::SeparableConv2D: an option is not supported; it accepts padding, strides, "
      "dilation, depth_multiplier, an activation, use_bias, depthwise_initializer, "
      "pointwise_initializer, depthwise_regularizer, pointwise_regularizer, and those of the bias");
};
}  // namespace detail

/// Keras' SeparableConv2D: separate kernels for each channel, of size `Kernel` (3, or ls::kernel(5,
/// 3)), then `Filters` linear combinations of their outputs (Chollet, "Xception", 2017).
///
/// Options: those of DepthwiseConv2D, for the depthwise part, ls::pointwise_initializer and
/// ls::pointwise_regularizer. Input (h, w, c), output (h', w', Filters); parameters
/// `depthwise_kernel` (kh, kw, c, m), `pointwise_kernel` (1, 1, c m, Filters) and `bias` (Filters).
/// \code
///   SeparableConv2D<64, 3, ls::same, ls::no_bias, ls::pointwise_initializer(ls::he_normal)>
/// \endcode
template <int Filters, auto Kernel, auto... Options>
struct SeparableConv2D {
  static constexpr std::string_view name = "separable_conv2d";
  using activation = detail::activation_of<Options...>;

  template <Shape In>
  struct Requires {
    static_assert(
        In.rank == 3 || detail::always_false<SeparableConv2D>,
        "lockstep::SeparableConv2D: the input does not have height, width and channels; put "
        "Flatten after the convolutions");
    static_assert(In.rank != 3,
                  "lockstep::SeparableConv2D: the input is smaller than the kernel; use a smaller "
                  "kernel or ls::same");
  };
  static constexpr bool accepts(Shape in) {
    const DepthwiseConv2DOp first = op(in).depthwise;
    return in.rank == 3 && first.rows().fits() && first.columns().fits();
  }
  static constexpr SeparableConv2DOp op(Shape in) {
    return {detail::depthwise_op<Kernel, Options...>(in, false), Filters,
            detail::has_bias<Options...>()};
  }
  static constexpr std::array<Parameter, 3> parameters(Shape in) {
    const DepthwiseConv2DOp first = op(in).depthwise;
    const Fans fans = {first.filters(), Filters};
    return {Parameter{"depthwise_kernel", first.kernel_shape(),
                      detail::depthwise_fans(first.kernel.height * first.kernel.width, in[2],
                                             first.multiplier),
                      detail::initializer_for<DepthwiseInitializer, Options...>(
                          &detail::initialize<glorot_uniform>),
                      detail::penalty_for<DepthwiseRegularizer, Options...>(), true, true},
            Parameter{"pointwise_kernel", shape(1, 1, first.filters(), Filters), fans,
                      detail::initializer_for<PointwiseInitializer, Options...>(
                          &detail::initialize<glorot_uniform>),
                      detail::penalty_for<PointwiseRegularizer, Options...>(), true, true},
            Parameter{"bias", shape(Filters), fans,
                      detail::bias_initializer_of<Options...>(&detail::initialize<zeros>),
                      detail::bias_penalty<Options...>(), true, detail::has_bias<Options...>()}};
  }

  static_assert(sizeof(detail::CheckSeparableConv2D<
                       Filters, detail::depthwise_op<Kernel, Options...>(Shape{}, false),
                       std::remove_cvref_t<decltype(Options)>...>) > 0);
};

static_assert(Layer<SeparableConv2D<8, 3>> &&
              SeparableConv2D<8, 3>::op(shape(28, 28, 3)).out() == shape(26, 26, 8));

}  // namespace lockstep
