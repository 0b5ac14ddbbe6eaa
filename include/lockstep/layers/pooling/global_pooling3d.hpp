/// \file
/// Global pooling over volumes (depth, height, width, channels), as over images with all rows of all
/// slices. Invariant: the ops have no separate kernels; on each device the kernels of the image ops do
/// the work.
#pragma once

#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/layers/inner_kernel.hpp"
#include "lockstep/layers/pooling/global_average_pooling2d.hpp"
#include "lockstep/layers/pooling/global_max_pooling2d.hpp"

namespace lockstep {
namespace detail {

/// The image (depth height, width, channels) of a volume.
constexpr Shape as_image(Shape in) { return shape(in[0] * in[1], in[2], in[3]); }

/// The kernel of both ops.
template <class O, class D>
struct GlobalPooling3DKernel : KernelTraits {
  using Inner = Kernel<typename O::Image, D>;
  using Prepared = InnerKernel<typename O::Image, D>;
  static constexpr bool keeps_x = Inner::keeps_x, keeps_y = Inner::keeps_y;
  static constexpr std::size_t saved(const O& op) { return Inner::saved(op.image()); }

  template <std::same_as<ForwardOnly>... Only>
  static Prepared prepare(const O& op, typename D::Context& context, std::size_t count,
                          Only... only) {
    return {op.image(), context, count, only...};
  }
  static void forward(const O& op, const Io<D>& io, Prepared& prepared) {
    prepared.forward(op.image(), io);
  }
  static void backward(const O& op, const Io<D>& io, Prepared& prepared) {
    prepared.backward(op.image(), io);
  }
};

/// A layer over whole volumes.
template <class TheOp>
struct GlobalPooling3DLayer : ParameterlessLayer<TheOp> {
  static constexpr bool accepts(Shape in) { return in.rank == 4; }
  template <Shape In>
  struct Requires {
    static_assert(
        In.rank == 4,
        "lockstep::GlobalPooling3D: the input does not have depth, height, width and channels; put "
        "it before Flatten");
  };
};

}  // namespace detail

/// y[n, k] = mean over z, r, c of x[n, z, r, c, k].
struct GlobalAveragePooling3DOp {
  using Image = GlobalAveragePooling2DOp;
  Shape in;  // (depth, height, width, channels)
  constexpr Image image() const { return {detail::as_image(in)}; }
  constexpr Shape out() const { return shape(in[3]); }
  bool operator==(const GlobalAveragePooling3DOp&) const = default;
};

/// y[n, k] = max over z, r, c of x[n, z, r, c, k]. Equal maxima share the gradient; NaN propagates.
struct GlobalMaxPooling3DOp {
  using Image = GlobalMaxPooling2DOp;
  Shape in;  // (depth, height, width, channels)
  constexpr Image image() const { return {detail::as_image(in)}; }
  constexpr Shape out() const { return shape(in[3]); }
  bool operator==(const GlobalMaxPooling3DOp&) const = default;
};

template <class D>
  requires HasKernel<GlobalAveragePooling2DOp, D>
struct Kernel<GlobalAveragePooling3DOp, D>
    : detail::GlobalPooling3DKernel<GlobalAveragePooling3DOp, D> {
  using library_kernel =
      std::conditional_t<detail::of_library<GlobalAveragePooling2DOp, D>, Kernel, void>;
};
template <class D>
  requires HasKernel<GlobalMaxPooling2DOp, D>
struct Kernel<GlobalMaxPooling3DOp, D> : detail::GlobalPooling3DKernel<GlobalMaxPooling3DOp, D> {
  using library_kernel =
      std::conditional_t<detail::of_library<GlobalMaxPooling2DOp, D>, Kernel, void>;
};

/// Keras' GlobalAveragePooling3D. Input (d, h, w, c), output (c).
struct GlobalAveragePooling3D : detail::GlobalPooling3DLayer<GlobalAveragePooling3DOp> {
  static constexpr std::string_view name = "global_average_pooling3d";
};
/// Keras' GlobalMaxPooling3D. Input (d, h, w, c), output (c).
struct GlobalMaxPooling3D : detail::GlobalPooling3DLayer<GlobalMaxPooling3DOp> {
  static constexpr std::string_view name = "global_max_pooling3d";
};

}  // namespace lockstep
