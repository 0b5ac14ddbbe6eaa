/// \file
/// Batch normalization over all axes but the last.
#pragma once

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/initializers.hpp"
#include "lockstep/layers/normalization/normalization_options.hpp"
#include "lockstep/layers/options.hpp"

namespace lockstep {

/// y = gamma (x - mean) / sqrt(variance + epsilon) + beta.
///
/// During training, mean and population variance are computed over all axes but the last and over
/// the replica's part of the batch (with virtual shards: the shard's part); otherwise the moving
/// statistics are used. Each training step updates them: moving = momentum * moving + (1 -
/// momentum) * batch.
struct BatchNormalizationOp {
  static constexpr std::string_view members = "in momentum epsilon center scale synchronized";
  Shape in;
  double momentum = 0.99;
  float epsilon = 1e-3f;
  bool center = true, scale = true, synchronized = false;
  constexpr Shape out() const { return in; }
  constexpr std::size_t channels() const { return static_cast<std::size_t>(in.channels()); }
  /// Vectors of channels per example.
  constexpr std::size_t rows() const { return in.size() / channels(); }
  constexpr std::size_t weights() const {
    return (scale ? channels() : 0) + (center ? channels() : 0);
  }
  constexpr std::size_t state() const { return 2 * channels(); }
  bool operator==(const BatchNormalizationOp&) const = default;
};

/// Fraction of the moving statistics that each step keeps; made by `momentum`.
struct Momentum {
  double value = 0.99;
};
/// Whether statistics span the global batch; made by `synchronized`.
struct Synchronized {
  bool on = true;
};
/// Fraction of the moving statistics that each step keeps, near 1.
constexpr Momentum momentum(double value) { return {value}; }
/// Computes statistics over the global batch instead of each replica's part.
inline constexpr Synchronized synchronized{};

namespace detail {
template <class... Options>
struct CheckBatchNormalization {
  static_assert(
      (is_any_of<Options, Momentum, Epsilon, Center, Scale, Synchronized> && ...),
      "lockstep::BatchNormalization: an option is not supported; it accepts momentum, epsilon, "
      "center, scale and synchronized");
};
}  // namespace detail

/// Keras' BatchNormalization (Ioffe and Szegedy, 2015), by default with momentum 0.99 and epsilon
/// 1e-3. Parameters `gamma` and `beta`, state `moving_mean` and `moving_variance`, each (channels).
/// Shape unchanged.
/// \code
///   BatchNormalization<ls::momentum(0.997), ls::epsilon(1e-5f), ls::synchronized>
/// \endcode
template <auto... Options>
struct BatchNormalization {
  static constexpr std::string_view name = "batch_normalization";
  static constexpr bool accepts(Shape in) { return in.rank >= 1; }
  static constexpr BatchNormalizationOp op(Shape in) {
    return {in,
            detail::option<Momentum, Options...>(Momentum{}).value,
            detail::option<Epsilon, Options...>(Epsilon{}).value,
            detail::option<Center, Options...>(Center{}).on,
            detail::option<Scale, Options...>(Scale{}).on,
            detail::option<Synchronized, Options...>(Synchronized{false}).on};
  }
  static constexpr std::array<Parameter, 4> parameters(Shape in) {
    const Shape c = shape(in.channels());
    const BatchNormalizationOp o = op(in);
    return {Parameter{"gamma", c, {}, &detail::initialize<ones>, {}, true, o.scale},
            Parameter{"beta", c, {}, &detail::initialize<zeros>, {}, true, o.center},
            Parameter{"moving_mean", c, {}, &detail::initialize<zeros>, {}, false, true},
            Parameter{"moving_variance", c, {}, &detail::initialize<ones>, {}, false, true}};
  }

  static_assert(sizeof(detail::CheckBatchNormalization<std::remove_cvref_t<decltype(Options)>...>) >
                0);
};

static_assert(Layer<BatchNormalization<>>);

}  // namespace lockstep
