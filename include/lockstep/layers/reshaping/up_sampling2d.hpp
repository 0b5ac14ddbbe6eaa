/// \file
/// Upsampling of images by integer factors.
#pragma once

#include <algorithm>

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/interpolation.hpp"
#include "lockstep/layers/options.hpp"

namespace lockstep {

/// Option created by `size`.
struct Factors {
  int height = 2, width = 2;
  bool operator==(const Factors&) const = default;
};
/// Factors for height and width: `UpSampling2D<ls::size(2, 3)>`.
constexpr Factors size(int height, int width) { return {height, width}; }

/// y[n, r, c, k] = x[n, r / height, c / width, k] with `nearest`. With `bilinear`, x is
/// interpolated at row (r + 1/2) / height - 1/2 and column (c + 1/2) / width - 1/2; its border
/// pixels extend outward.
struct UpSampling2DOp {
  static constexpr std::string_view members = "in size interpolation";
  Shape in;  // (height, width, channels)
  Factors size;
  Interpolation interpolation = Interpolation::nearest;
  constexpr Shape out() const { return shape(in[0] * size.height, in[1] * size.width, in[2]); }
  bool operator==(const UpSampling2DOp&) const = default;
};

namespace detail {

/// A sample point between two pixels of an axis: `part` of the way from `low` to `high`.
template <class T>
struct SamplePoint {
  int low, high;
  T part;
};
/// The sample point of output pixel `i` when an axis of `extent` pixels is scaled by `factor`.
/// Pixel centers are at half-integers (half-pixel convention).
template <class T>
constexpr SamplePoint<T> sample_point(int i, int factor, int extent) {
  const int denominator = 2 * factor,
            position = 2 * i + 1 - factor;  // in units of 1 / denominator pixel
  const int low = position < 0 ? -1 : position / denominator, rest = position - low * denominator;
  return {std::max(low, 0), std::min(rest == 0 ? low : low + 1, extent - 1),
          static_cast<T>(rest) / static_cast<T>(denominator)};
}
static_assert(sample_point<double>(0, 2, 5).low == 0 && sample_point<double>(0, 2, 5).high == 0);
static_assert(sample_point<double>(3, 2, 5).low == 1 && sample_point<double>(3, 2, 5).part == 0.25);
static_assert(sample_point<double>(4, 3, 5).low == 1 && sample_point<double>(4, 3, 5).part == 0);

/// A size given as one factor or as ls::size.
constexpr Factors size_of(int both) { return {both, both}; }
constexpr Factors size_of(Factors given) { return given; }

template <Factors Size, class... Options>
struct CheckUpSampling2D {
  static_assert(Size.height > 0 && Size.width > 0,
                "lockstep::UpSampling2D: the factors must be at least 1; write UpSampling2D<2> or "
                "UpSampling2D<ls::size(2, 3)>");
  static_assert(
      (is_any_of<Options, Interpolation> && ...),
      "lockstep::UpSampling2D: an option is not supported; it accepts ls::nearest or ls::bilinear");
};
}  // namespace detail

/// Keras' UpSampling2D, by default with factor 2 and nearest-neighbor interpolation; ls::bilinear
/// is the alternative. Input (h, w, c), output (h height, w width, c).
/// \code
///   UpSampling2D<>, UpSampling2D<ls::size(2, 3)>, UpSampling2D<4, ls::bilinear>
/// \endcode
template <auto Size = 2, auto... Options>
struct UpSampling2D {
  static constexpr std::string_view name = "up_sampling2d";
  template <Shape In>
  struct Requires {
    static_assert(
        In.rank == 3,
        "lockstep::UpSampling2D: the input does not have height, width and channels; put it before "
        "Flatten");
  };
  static constexpr bool accepts(Shape in) { return in.rank == 3; }
  static constexpr std::array<Parameter, 0> parameters(Shape) { return {}; }
  static constexpr UpSampling2DOp op(Shape in) {
    return {in, detail::size_of(Size),
            detail::option<Interpolation, Options...>(Interpolation::nearest)};
  }

  static_assert(sizeof(detail::CheckUpSampling2D<detail::size_of(Size),
                                                 std::remove_cvref_t<decltype(Options)>...>) > 0);
};

static_assert(Layer<UpSampling2D<>> &&
              UpSampling2D<lockstep::size(2, 3)>::op(shape(4, 5, 6)).out() == shape(8, 15, 6));

}  // namespace lockstep
