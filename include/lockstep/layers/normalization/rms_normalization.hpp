/// \file
/// Normalization of vectors by their root mean square.
#pragma once

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/initializers.hpp"
#include "lockstep/layers/normalization/normalization_options.hpp"
#include "lockstep/layers/normalization/normalized_blocks.hpp"
#include "lockstep/layers/options.hpp"

namespace lockstep {

/// y = scale x / sqrt(mean(x^2) + epsilon), with the mean over each vector along the last axis.
struct RMSNormalizationOp {
  static constexpr std::string_view members = "in epsilon";
  static constexpr bool center = false, scale = true;
  Shape in;
  float epsilon = 1e-6f;
  constexpr Shape out() const { return in; }
  constexpr std::size_t channels() const { return static_cast<std::size_t>(in.channels()); }
  constexpr NormalizedBlocks blocks() const { return {.channels = channels()}; }
  constexpr std::size_t weights() const { return channels(); }
  bool operator==(const RMSNormalizationOp&) const = default;
};

namespace detail {
template <class... Options>
struct CheckRMSNormalization {
  static_assert((is_any_of<Options, Epsilon> && ...),
                "lockstep::RMSNormalization: an option is not supported; it accepts epsilon");
};
}  // namespace detail

/// Keras' RMSNormalization (Zhang and Sennrich, 2019), by default with epsilon 1e-6. Parameter
/// `scale` (channels). Shape unchanged.
/// \code
///   RMSNormalization<>, RMSNormalization<ls::epsilon(1e-5f)>
/// \endcode
template <auto... Options>
struct RMSNormalization {
  static constexpr std::string_view name = "rms_normalization";
  static constexpr bool accepts(Shape in) { return in.rank >= 1; }
  static constexpr RMSNormalizationOp op(Shape in) {
    return {in, detail::option<Epsilon, Options...>(Epsilon{1e-6f}).value};
  }
  static constexpr std::array<Parameter, 1> parameters(Shape in) {
    return {
        Parameter{"scale", shape(in.channels()), {}, &detail::initialize<ones>, {}, true, true}};
  }

  static_assert(sizeof(detail::CheckRMSNormalization<std::remove_cvref_t<decltype(Options)>...>) >
                0);
};

static_assert(Layer<RMSNormalization<>>);

}  // namespace lockstep
