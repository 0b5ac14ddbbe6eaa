/// \file
/// Keras 3's initializers. Invariant: values are drawn in double from a generator keyed by (seed,
/// parameter name), so all devices and replicas start with identical weights.
#pragma once

#include <cmath>
#include <concepts>
#include <span>
#include <vector>

#include "lockstep/core/parameter.hpp"

namespace lockstep {

/// A structural type with `void operator()(Philox&, const Shape&, Fans, std::span<double> out)
/// const`. User-defined initializers are passed to a layer like those below: `Dense<64,
/// mine::Cauchy{}>`.
template <class I>
concept InitializerPolicy =
    requires(const I& init, Philox& g, const Shape& shape, std::span<double> out) {
      { init(g, shape, Fans{}, out) } -> std::same_as<void>;
    };

/// Which fan a variance is scaled by.
enum class FanMode : int { in, out, average };
enum class Distribution : int { uniform, truncated_normal };

/// Keras' VarianceScaling: variance scale / n, with n the fan of the mode.
/// Uniform: limit sqrt(3 scale / n). Truncated normal: deviation sqrt(scale / n) /
/// 0.87962566103423978, truncated at two deviations; the constant restores the variance.
struct VarianceScaling {
  double scale = 1;
  FanMode mode = FanMode::in;
  Distribution distribution = Distribution::truncated_normal;

  void operator()(Philox& g, const Shape&, Fans fans, std::span<double> out) const {
    const double n = mode == FanMode::in    ? fans.in
                     : mode == FanMode::out ? fans.out
                                            : (fans.in + fans.out) / 2.0;
    const double variance = scale / (n > 1 ? n : 1);
    if (distribution == Distribution::uniform) {
      const double limit = std::sqrt(3 * variance);
      for (double& v : out) v = limit * (2 * g.uniform() - 1);
    } else {
      const double deviation = std::sqrt(variance) / 0.87962566103423978;
      for (double& v : out) v = deviation * g.truncated_normal();
    }
  }
};

inline constexpr VarianceScaling glorot_uniform{1, FanMode::average, Distribution::uniform};
inline constexpr VarianceScaling glorot_normal{1, FanMode::average, Distribution::truncated_normal};
inline constexpr VarianceScaling he_uniform{2, FanMode::in, Distribution::uniform};
inline constexpr VarianceScaling he_normal{2, FanMode::in, Distribution::truncated_normal};
inline constexpr VarianceScaling lecun_uniform{1, FanMode::in, Distribution::uniform};
inline constexpr VarianceScaling lecun_normal{1, FanMode::in, Distribution::truncated_normal};

/// Keras' RandomUniform: uniform between two bounds.
struct RandomUniform {
  double minimum = -0.05, maximum = 0.05;
  void operator()(Philox& g, const Shape&, Fans, std::span<double> out) const {
    for (double& v : out) v = minimum + (maximum - minimum) * g.uniform();
  }
};

/// Keras' RandomNormal: normal with this mean and standard deviation.
struct RandomNormal {
  double mean = 0, standard_deviation = 0.05;
  void operator()(Philox& g, const Shape&, Fans, std::span<double> out) const {
    for (double& v : out) v = mean + standard_deviation * g.normal();
  }
};

/// Keras' TruncatedNormal: normal, redrawn beyond two standard deviations.
struct TruncatedNormal {
  double mean = 0, standard_deviation = 0.05;
  void operator()(Philox& g, const Shape&, Fans, std::span<double> out) const {
    for (double& v : out) v = mean + standard_deviation * g.truncated_normal();
  }
};

/// Keras' Constant: all elements equal `value`.
struct ConstantValue {
  double value = 0;
  void operator()(Philox&, const Shape&, Fans, std::span<double> out) const {
    for (double& v : out) v = value;
  }
};
inline constexpr ConstantValue zeros{0}, ones{1};

/// Keras' OrthogonalInitializer. The parameter is read as a matrix (all axes but the last, last
/// axis), whose rows or columns, whichever are fewer, are orthonormal times `gain`. Two passes of
/// Gram-Schmidt yield the QR factor with a positive diagonal.
struct Orthogonal {
  double gain = 1;
  void operator()(Philox& g, const Shape& shape, Fans, std::span<double> out) const {
    const std::size_t columns = static_cast<std::size_t>(shape.channels()),
                      rows = out.size() / columns;
    const std::size_t vectors = rows < columns ? rows : columns,
                      length = rows < columns ? columns : rows;
    std::vector<double> q(vectors * length);
    for (double& v : q) v = g.normal();
    for (std::size_t i = 0; i < vectors; ++i) {
      double* const a = q.data() + i * length;
      for (int pass = 0; pass < 2; ++pass) {
        for (std::size_t j = 0; j < i; ++j) {
          const double* const b = q.data() + j * length;
          double dot = 0;
          for (std::size_t k = 0; k < length; ++k) dot += a[k] * b[k];
          for (std::size_t k = 0; k < length; ++k) a[k] -= dot * b[k];
        }
      }
      double norm = 0;
      for (std::size_t k = 0; k < length; ++k) norm += a[k] * a[k];
      for (std::size_t k = 0; k < length; ++k) a[k] /= std::sqrt(norm);
    }
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t c = 0; c < columns; ++c)
        out[r * columns + c] = gain * (rows < columns ? q[r * length + c] : q[c * length + r]);
  }
};
inline constexpr Orthogonal orthogonal{};

/// Option created by `kernel_initializer`.
template <class I>
struct KernelInitializer {
  I rule;
};
/// Option created by `bias_initializer`.
template <class I>
struct BiasInitializer {
  I rule;
};
/// Names the parameter that an initializer is for. An initializer alone is for the kernel.
template <InitializerPolicy I>
constexpr KernelInitializer<I> kernel_initializer(I rule) {
  return {rule};
}
/// The initializer of the bias.
template <InitializerPolicy I>
constexpr BiasInitializer<I> bias_initializer(I rule) {
  return {rule};
}

namespace detail {

/// Calls initializer I: its address is the type-erased Initializer of a Parameter.
template <auto I>
void initialize(Philox& g, const Shape& shape, Fans fans, std::span<double> out) {
  I(g, shape, fans, out);
}

/// Whether O initializes the kernel.
template <class O>
inline constexpr bool is_kernel_initializer = InitializerPolicy<O>;
template <class I>
inline constexpr bool is_kernel_initializer<KernelInitializer<I>> = true;
/// Whether O initializes the bias.
template <class O>
inline constexpr bool is_bias_initializer = false;
template <class I>
inline constexpr bool is_bias_initializer<BiasInitializer<I>> = true;

/// The kernel initializer among Options; `value` without one.
template <auto... Options>
constexpr Initializer kernel_initializer_of(Initializer value) {
  [[maybe_unused]] auto visit = [&]<auto O>() {
    using T = std::remove_cvref_t<decltype(O)>;
    if constexpr (InitializerPolicy<T>)
      value = &initialize<O>;
    else if constexpr (is_kernel_initializer<T>)
      value = &initialize<O.rule>;
  };
  (visit.template operator()<Options>(), ...);
  return value;
}

/// The bias initializer among Options; `value` without one.
template <auto... Options>
constexpr Initializer bias_initializer_of(Initializer value) {
  [[maybe_unused]] auto visit = [&]<auto O>() {
    if constexpr (is_bias_initializer<std::remove_cvref_t<decltype(O)>>)
      value = &initialize<O.rule>;
  };
  (visit.template operator()<Options>(), ...);
  return value;
}

}  // namespace detail
}  // namespace lockstep
