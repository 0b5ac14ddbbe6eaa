/// \file
/// Random zoom into images and out of them.
#pragma once

#include "lockstep/layers/preprocessing/affine_image.hpp"

namespace lockstep {

/// Training: y[r, c] = x at row (r - middle) (1 + zy) + middle and column (c - middle) (1 + zx) +
/// middle, with zy drawn uniformly from `rows` and zx from `columns`; with `keeps_aspect` zx is zy.
/// Inference: y = x.
struct RandomZoomOp {
  static constexpr std::string_view members =
      "in height_factor width_factor fill interpolation keeps_aspect";
  Shape in;  // (height, width, channels)
  FactorRange rows, columns;
  Fill fill = {};
  Interpolation interpolation = Interpolation::bilinear;
  bool keeps_aspect = false;
  constexpr Shape out() const { return in; }
  constexpr AffineMap map(double first, double second) const {
    const auto zoom = [](FactorRange range, double draw) {
      const auto lower = static_cast<double>(range.lower), upper = static_cast<double>(range.upper);
      return 1 + (lower + draw * (upper - lower));
    };
    const double down = zoom(rows, first), across = keeps_aspect ? down : zoom(columns, second);
    return {.xx = across,
            .x0 = (in[1] - 1) / 2.0 * (1 - across),
            .yy = down,
            .y0 = (in[0] - 1) / 2.0 * (1 - down)};
  }
  bool operator==(const RandomZoomOp&) const = default;
};

namespace detail {

/// The range of the width among the options: one that is a factor; that of the height without one.
template <auto... Options>
constexpr FactorRange width_range(FactorRange height) {
  [[maybe_unused]] auto visit = [&]<auto O>() {
    if constexpr (is_any_of<std::remove_cvref_t<decltype(O)>, Factor, FactorRange>)
      height = factor_range(O);
  };
  (visit.template operator()<Options>(), ...);
  return height;
}
/// Whether no option is a factor of the width.
template <class... Options>
inline constexpr bool has_no_width = !(is_any_of<Options, Factor, FactorRange> || ...);

template <FactorRange A, FactorRange B, class... Options>
struct CheckZoom {
  static_assert(is_factor(A) && is_factor(B),
                "lockstep::Augmentation: factors must be in [-1, 1]; write "
                "RandomZoom<ls::factor(0.2)> or RandomZoom<ls::factor(0.2), ls::factor(-0.1, 0)>");
  static_assert((is_any_of<Options, Factor, FactorRange, Fill, Interpolation> && ...),
                "lockstep::Augmentation: an option is not supported; it accepts a second factor, "
                "fill_reflect, fill_constant, fill_wrap or fill_nearest, and bilinear or nearest");
};

}  // namespace detail

/// Keras' RandomZoom(height_factor, width_factor): during training, zooms each image by random
/// factors about its center: out for factors above 0, in for those below. Shape unchanged. With one
/// factor the aspect ratio is kept. Options: the fill mode (default `fill_reflect`) and the
/// interpolation (default `bilinear`).
/// \code
///   RandomZoom<ls::factor(0.2)>                                       // by up to a fifth
///   RandomZoom<ls::factor(-0.3, 0), ls::factor(0), ls::fill_nearest>  // taller only
/// \endcode
template <auto HeightFactor, auto... Options>
struct RandomZoom : detail::Augmentation {
  static constexpr std::string_view name = "random_zoom";
  static constexpr FactorRange rows = detail::factor_range(HeightFactor),
                               columns = detail::width_range<Options...>(rows);
  static constexpr RandomZoomOp op(Shape in) {
    return {in,
            rows,
            columns,
            detail::option<Fill, Options...>(Fill{}),
            detail::option<Interpolation, Options...>(Interpolation::bilinear),
            detail::has_no_width<std::remove_cvref_t<decltype(Options)>...>};
  }

  static_assert(
      sizeof(detail::CheckZoom<rows, columns, std::remove_cvref_t<decltype(Options)>...>) > 0);
};

static_assert(Layer<RandomZoom<factor(0.1), factor(0, 0.2)>> && AffineImageOp<RandomZoomOp>);

}  // namespace lockstep
