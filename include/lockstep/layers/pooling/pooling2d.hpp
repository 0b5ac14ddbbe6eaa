/// \file
/// Shared by max and average pooling: options and window arithmetic.
#pragma once

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/sliding_window.hpp"

namespace lockstep {

/// A pooling window over height and width; each channel is pooled independently.
struct Pooling2DWindow {
  static constexpr std::string_view members = "in pool_size strides padding";
  Shape in;  // (height, width, channels)
  KernelSize pool{2, 2};
  Strides strides{2, 2};
  Padding padding = Padding::valid;

  constexpr Window rows() const { return {in[0], pool.height, strides.height, 1, padding}; }
  constexpr Window columns() const { return {in[1], pool.width, strides.width, 1, padding}; }
  constexpr Shape out() const { return shape(rows().out(), columns().out(), in[2]); }
  bool operator==(const Pooling2DWindow&) const = default;
};

namespace detail {

/// A pool size given as one number or as ls::kernel.
constexpr KernelSize pool_size(int both) { return {both, both}; }
constexpr KernelSize pool_size(KernelSize size) { return size; }

/// The window of a pooling layer. As in Keras, the strides default to the pool size.
template <auto Pool, auto... Options>
constexpr Pooling2DWindow pooling_window(Shape in) {
  const KernelSize p = pool_size(Pool);
  return {in, p, option<Strides, Options...>(Strides{p.height, p.width}),
          option<Padding, Options...>(Padding::valid)};
}

template <KernelSize Pool, Strides Step, class... Options>
struct CheckPooling2D {
  static_assert(Pool.height > 0 && Pool.width > 0 && Step.height > 0 && Step.width > 0,
                "lockstep::Pooling2D: the pool size and the strides must be at least 1; write "
                "MaxPooling2D<2>");
  static_assert((is_any_of<Options, Padding, Strides> && ...),
                "lockstep::Pooling2D: an option is not supported; it accepts strides and padding");
};

/// A pooling layer whose op, TheOp, consists of the window.
template <class TheOp, auto Pool, auto... Options>
struct Pooling2DLayer {
  template <Shape In>
  struct Requires {
    static_assert(
        In.rank == 3 || always_false<TheOp>,
        "lockstep::Pooling2D: the input does not have height, width and channels; put pooling "
        "before Flatten");
    static_assert(
        In.rank != 3,
        "lockstep::Pooling2D: the input is smaller than the pool; use a smaller pool or ls::same");
  };
  static constexpr bool accepts(Shape in) {
    return in.rank == 3 && op(in).window.rows().fits() && op(in).window.columns().fits();
  }
  static constexpr TheOp op(Shape in) { return {pooling_window<Pool, Options...>(in)}; }
  static constexpr std::array<Parameter, 0> parameters(Shape) { return {}; }

  static_assert(sizeof(CheckPooling2D<pool_size(Pool), option<Strides, Options...>(Strides{}),
                                      std::remove_cvref_t<decltype(Options)>...>) > 0);
};

}  // namespace detail
}  // namespace lockstep
