/// \file
/// Layer normalization over the last axis.
#pragma once

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/initializers.hpp"
#include "lockstep/layers/normalization/normalization_options.hpp"
#include "lockstep/layers/normalization/normalized_blocks.hpp"
#include "lockstep/layers/options.hpp"

namespace lockstep {

/// y = gamma (x - mean) / sqrt(variance + epsilon) + beta, with the mean and population variance of
/// each vector along the last axis.
struct LayerNormalizationOp {
  static constexpr std::string_view members = "in epsilon center scale";
  Shape in;
  float epsilon = 1e-3f;
  bool center = true, scale = true;
  constexpr Shape out() const { return in; }
  constexpr std::size_t channels() const { return static_cast<std::size_t>(in.channels()); }
  /// Vectors of channels per example.
  constexpr std::size_t rows() const { return in.size() / channels(); }
  constexpr NormalizedBlocks blocks() const { return {.channels = channels()}; }
  constexpr std::size_t weights() const {
    return (scale ? channels() : 0) + (center ? channels() : 0);
  }
  bool operator==(const LayerNormalizationOp&) const = default;
};

namespace detail {
template <class... Options>
struct CheckLayerNormalization {
  static_assert(
      (is_any_of<Options, Epsilon, Center, Scale> && ...),
      "lockstep::LayerNormalization: an option is not supported; it accepts epsilon, center and "
      "scale");
};
}  // namespace detail

/// Keras' LayerNormalization (Ba, Kiros and Hinton, 2016), by default with epsilon 1e-3. Parameters
/// `gamma` and `beta`, each (channels). Shape unchanged.
/// \code
///   LayerNormalization<ls::epsilon(1e-6f)>
/// \endcode
template <auto... Options>
struct LayerNormalization {
  static constexpr std::string_view name = "layer_normalization";
  static constexpr bool supports_masking = true;
  static constexpr bool accepts(Shape in) { return in.rank >= 1; }
  static constexpr LayerNormalizationOp op(Shape in) {
    return {in, detail::option<Epsilon, Options...>(Epsilon{}).value,
            detail::option<Center, Options...>(Center{}).on,
            detail::option<Scale, Options...>(Scale{}).on};
  }
  static constexpr std::array<Parameter, 2> parameters(Shape in) {
    const Shape c = shape(in.channels());
    const LayerNormalizationOp o = op(in);
    return {Parameter{"gamma", c, {}, &detail::initialize<ones>, {}, true, o.scale},
            Parameter{"beta", c, {}, &detail::initialize<zeros>, {}, true, o.center}};
  }

  static_assert(sizeof(detail::CheckLayerNormalization<std::remove_cvref_t<decltype(Options)>...>) >
                0);
};

static_assert(Layer<LayerNormalization<>>);

}  // namespace lockstep
