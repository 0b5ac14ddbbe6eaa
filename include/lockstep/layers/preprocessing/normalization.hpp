/// \file
/// Normalization of the inputs to mean 0 and variance 1 by statistics of the data.
#pragma once

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/initializers.hpp"

namespace lockstep {

/// y[.., k] = (x[.., k] - mean[k]) / max(sqrt(variance[k]), 1e-7).
struct NormalizationOp {
  Shape in;
  constexpr Shape out() const { return in; }
  constexpr std::size_t state() const { return 2 * static_cast<std::size_t>(in.channels()); }
  bool operator==(const NormalizationOp&) const = default;
};

/// Keras' Normalization over the last axis, as the first layer of a model. Shape unchanged. State
/// `mean` and `variance`, each (channels), is 0 and 1 until `ls::adapt` computes it from the data
/// or `load_weights` loads it; it is never trained.
/// \code
///   struct Net : ls::Sequential<ls::Input<13>, ls::Normalization, ls::Dense<1>> {};
///   ls::Model model{Net{}, ...};
///   ls::adapt(model, data);              // like Keras' layer.adapt(data)
/// \endcode
struct Normalization {
  static constexpr std::string_view name = "normalization";
  static constexpr bool supports_masking = true;
  static constexpr bool accepts(Shape in) { return in.rank >= 1; }
  static constexpr NormalizationOp op(Shape in) { return {in}; }
  static constexpr std::array<Parameter, 2> parameters(Shape in) {
    const Shape c = shape(in.channels());
    return {Parameter{"mean", c, {}, &detail::initialize<zeros>, {}, false, true},
            Parameter{"variance", c, {}, &detail::initialize<ones>, {}, false, true}};
  }
};

static_assert(Layer<Normalization>);

}  // namespace lockstep
