/// \file
/// Shared by the layers of images: options and checks. Invariants: those that draw are active only
/// during training, except RandomCrop, whose output always has its size; the draw of an
/// example is a function of (seed, pass, layer, ordinal of the example), so it does not depend on
/// how the batch is split, and backward regenerates it instead of storing it.
#pragma once

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/interpolation.hpp"
#include "lockstep/layers/options.hpp"
#include "lockstep/layers/preprocessing/rescaling.hpp"

namespace lockstep {

/// The range of a factor that is drawn uniformly.
struct FactorRange {
  static constexpr std::string_view members = "lower upper";
  float lower = 0, upper = 0;
  bool operator==(const FactorRange&) const = default;
};
/// The range between two factors, like Keras' tuple: `factor(-0.2, 0.3)`. A single factor f,
/// `factor(0.2)`, means (-f, f).
constexpr FactorRange factor(double one, double other) {
  const auto a = static_cast<float>(one), b = static_cast<float>(other);
  return a <= b ? FactorRange{a, b} : FactorRange{b, a};
}

namespace detail {

/// The range of a template argument: (-f, f) for one factor.
constexpr FactorRange factor_range(Factor f) {
  const auto value = static_cast<double>(f.value);
  return factor(-value, value);
}
constexpr FactorRange factor_range(FactorRange range) { return range; }
/// Not a factor: yields a range that CheckAffine rejects.
template <class T>
constexpr FactorRange factor_range(T) {
  return {2, 2};
}

/// Whether the range lies within [-1, 1].
constexpr bool is_factor(FactorRange range) { return range.lower >= -1 && range.upper <= 1; }

/// Base of layers over images without parameters. Their op is constructed from the input shape.
struct Augmentation {
  template <Shape In>
  struct Requires {
    static_assert(
        In.rank == 3,
        "lockstep::Augmentation: the input does not have height, width and channels; put layers of "
        "images before Flatten");
  };
  static constexpr bool accepts(Shape in) { return in.rank == 3; }
  static constexpr std::array<Parameter, 0> parameters(Shape) { return {}; }
};

template <FactorRange A, FactorRange B, class... Options>
struct CheckAffine {
  static_assert(is_factor(A) && is_factor(B),
                "lockstep::Augmentation: factors must be in [-1, 1]; write "
                "RandomRotation<ls::factor(0.1)> or RandomTranslation<ls::factor(0.1), "
                "ls::factor(-0.1, 0.2)>");
  static_assert(
      (is_any_of<Options, Fill, Interpolation> && ...),
      "lockstep::Augmentation: an option is not supported; it accepts fill_reflect, fill_constant, "
      "fill_wrap or fill_nearest, and bilinear or nearest");
};

}  // namespace detail
}  // namespace lockstep
