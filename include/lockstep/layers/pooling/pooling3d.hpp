/// \file
/// Max and average pooling over volumes (depth, height, width, channels), as two poolings over images:
/// the slices, then the depth.
///
///     forward    x (d, h, w, c) --slices--> (d, h', w', c) --depth--> y (d', h', w', c)
///     backward   dx <-------------slices-------------------<--depth-- dy
///
/// A maximum is the maximum of the slices' maxima, and the first of equal ones in row-major order is
/// in the first slice that has one. A mean over the part of a window inside the volume is the mean of
/// the slices' means, since these parts are equally large.
///
/// Invariant: the ops have no separate kernels; on each device the kernels of the image ops do the
/// work. Between the two, a value in scratch has the type of the activations.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/layers/inner_kernel.hpp"
#include "lockstep/layers/pooling/average_pooling2d.hpp"
#include "lockstep/layers/pooling/max_pooling2d.hpp"
#include "lockstep/layers/recurrent/time_distributed.hpp"
#include "lockstep/layers/volume_options.hpp"

namespace lockstep {

/// A pooling window over depth, height and width; each channel is pooled independently.
struct Pooling3DWindow {
  static constexpr std::string_view members = Pooling2DWindow::members;
  Shape in;  // (depth, height, width, channels)
  KernelSize3D pool{2, 2, 2};
  Strides3D strides{2, 2, 2};
  Padding padding = Padding::valid;

  constexpr Window depths() const { return {in[0], pool.depth, strides.depth, 1, padding}; }
  /// The window over one slice of the volume.
  constexpr Pooling2DWindow slice() const {
    return {shape(in[1], in[2], in[3]),
            {pool.height, pool.width},
            {strides.height, strides.width},
            padding};
  }
  /// The window over the depth of the pooled slices, whose pixels are in one row.
  constexpr Pooling2DWindow depth() const {
    const Shape pooled = slice().out();
    return {shape(in[0], pooled[0] * pooled[1], pooled[2]),
            {pool.depth, 1},
            {strides.depth, 1},
            padding};
  }
  constexpr Shape out() const {
    const Shape pooled = slice().out();
    return shape(depths().out(), pooled[0], pooled[1], pooled[2]);
  }
  bool operator==(const Pooling3DWindow&) const = default;
};

/// y[n, z, r, c, k] = max of x over the part of the window inside the volume. Among equal maxima the
/// first in row-major order gets the gradient; NaN propagates.
struct MaxPooling3DOp {
  static constexpr std::string_view members = "window";
  using Image = MaxPooling2DOp;
  Pooling3DWindow window;
  constexpr Shape out() const { return window.out(); }
  bool operator==(const MaxPooling3DOp&) const = default;
};

/// y[n, z, r, c, k] = mean of x over the part of the window inside the volume.
struct AveragePooling3DOp {
  static constexpr std::string_view members = "window";
  using Image = AveragePooling2DOp;
  Pooling3DWindow window;
  constexpr Shape out() const { return window.out(); }
  bool operator==(const AveragePooling3DOp&) const = default;
};

namespace detail {

/// The kernel of both ops.
template <class O, class D>
struct Pooling3DKernel : KernelTraits {
  using Image = typename O::Image;
  using Inner = Kernel<Image, D>;
  using Value = std::remove_pointer_t<decltype(Io<D>::y)>;
  static_assert(!Inner::keeps_x && !Inner::keeps_y);

  static constexpr std::size_t saved(const O& op) {
    return saved_of_slices(op) + aligned(Inner::saved(Image{op.window.depth()}), 4);
  }

  struct Prepared {
    InnerKernel<Image, D> slices, depth;
    std::size_t inner_bytes = 0, between_bytes = 0;
    std::size_t scratch_bytes() const { return inner_bytes + between_bytes; }
  };
  template <std::same_as<ForwardOnly>... Only>
  static Prepared prepare(const O& op, typename D::Context& context, std::size_t count,
                          Only... only) {
    Prepared p{{{op.window.slice()}, context, count * slices(op), only...},
               {{op.window.depth()}, context, count, only...}};
    p.inner_bytes = aligned(std::max(p.slices.scratch_bytes(), p.depth.scratch_bytes()), 64);
    p.between_bytes = count * op.window.depth().in.size() * sizeof(Value);
    return p;
  }

  static void forward(const O& op, const Io<D>& io, Prepared& prepared) {
    const CallForSteps<D> call(io, slices(op));
    Io<D> first = call.io;
    first.y = reinterpret_cast<Value*>(io.scratch + prepared.inner_bytes);
    prepared.slices.forward({op.window.slice()}, first);
    const Value* const between = first.y;
    Io<D> second = io;
    second.x = &between;
    second.saved = io.saved + io.step.count * saved_of_slices(op);
    prepared.depth.forward({op.window.depth()}, second);
  }
  static void backward(const O& op, const Io<D>& io, Prepared& prepared) {
    if (io.dx[0] == nullptr) return;
    const CallForSteps<D> call(io, slices(op));
    Io<D> first = call.io, second = io;
    first.dy = reinterpret_cast<Value*>(io.scratch + prepared.inner_bytes);
    second.dx = &first.dy;
    second.saved = io.saved + io.step.count * saved_of_slices(op);
    prepared.depth.backward({op.window.depth()}, second);
    prepared.slices.backward({op.window.slice()}, first);
  }

 private:
  static constexpr std::size_t aligned(std::size_t bytes, std::size_t to) {
    return (bytes + to - 1) / to * to;
  }
  static constexpr std::size_t slices(const O& op) {
    return static_cast<std::size_t>(op.window.in[0]);
  }
  /// Bytes per volume; what the depth saves follows those of all volumes.
  static constexpr std::size_t saved_of_slices(const O& op) {
    return aligned(slices(op) * Inner::saved(Image{op.window.slice()}), 4);
  }
};

}  // namespace detail

template <class D>
  requires HasKernel<MaxPooling2DOp, D>
struct Kernel<MaxPooling3DOp, D> : detail::Pooling3DKernel<MaxPooling3DOp, D> {
  using library_kernel = std::conditional_t<detail::of_library<MaxPooling2DOp, D>, Kernel, void>;
};
template <class D>
  requires HasKernel<AveragePooling2DOp, D>
struct Kernel<AveragePooling3DOp, D> : detail::Pooling3DKernel<AveragePooling3DOp, D> {
  using library_kernel =
      std::conditional_t<detail::of_library<AveragePooling2DOp, D>, Kernel, void>;
};

namespace detail {

template <KernelSize3D Pool, Strides3D Step, class... Options>
struct CheckPooling3D {
  static_assert(Pool.depth > 0 && Pool.height > 0 && Pool.width > 0 && Step.depth > 0 &&
                    Step.height > 0 && Step.width > 0,
                "lockstep::Pooling3D: the pool size and the strides are one number or three, at "
                "least 1; write MaxPooling3D<2>");
  static_assert((is_any_of<Options, Padding, Strides, Strides3D> && ...),
                "lockstep::Pooling3D: an option is not supported; it accepts strides and padding");
};

/// A pooling layer whose op, TheOp, consists of the window.
template <class TheOp, auto Pool, auto... Options>
struct Pooling3DLayer {
  static constexpr KernelSize3D pool = volume_size(Pool);
  /// As in Keras, the strides default to the pool size.
  static constexpr Strides3D step =
      volume_option<Strides, Strides3D, Options...>({pool.depth, pool.height, pool.width});

  template <Shape In>
  struct Requires {
    static_assert(
        In.rank == 4 || always_false<TheOp>,
        "lockstep::Pooling3D: the input does not have depth, height, width and channels; put "
        "pooling before Flatten");
    static_assert(
        In.rank != 4,
        "lockstep::Pooling3D: the input is smaller than the pool; use a smaller pool or ls::same");
  };
  static constexpr bool accepts(Shape in) {
    const Pooling2DWindow slice = op(in).window.slice();
    return in.rank == 4 && op(in).window.depths().fits() && slice.rows().fits() &&
           slice.columns().fits();
  }
  static constexpr TheOp op(Shape in) {
    return {{in, pool, step, option<Padding, Options...>(Padding::valid)}};
  }
  static constexpr std::array<Parameter, 0> parameters(Shape) { return {}; }

  static_assert(sizeof(CheckPooling3D<pool, step, std::remove_cvref_t<decltype(Options)>...>) > 0);
};

}  // namespace detail

/// Keras' MaxPooling3D, by default with pool size 2, strides equal to the pool size, and ls::valid.
/// The pool size is one number or ls::kernel with three, the strides are one number or three. Input
/// (d, h, w, c), output (d', h', w', c).
/// \code
///   MaxPooling3D<ls::kernel(1, 2, 2), ls::same>
/// \endcode
template <auto Pool = 2, auto... Options>
struct MaxPooling3D : detail::Pooling3DLayer<MaxPooling3DOp, Pool, Options...> {
  static constexpr std::string_view name = "max_pooling3d";
};
/// Keras' AveragePooling3D: the mean over the part of each window inside the volume. Options as for
/// MaxPooling3D. Input (d, h, w, c), output (d', h', w', c).
template <auto Pool = 2, auto... Options>
struct AveragePooling3D : detail::Pooling3DLayer<AveragePooling3DOp, Pool, Options...> {
  static constexpr std::string_view name = "average_pooling3d";
};

}  // namespace lockstep
