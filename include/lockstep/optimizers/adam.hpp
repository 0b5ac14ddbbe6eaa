/// \file
/// Adam. Invariants: the bias correction is folded into the rate, in double, once per update; as in
/// Keras, epsilon is added to the root of the uncorrected second moment.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers/square_root.hpp"
#include "lockstep/optimizers/schedule.hpp"
#include "lockstep/optimizers/update_options.hpp"

namespace lockstep {

/// One update of Adam; `rate` includes the bias correction. Slots: the first and second moments,
/// and with `amsgrad` the largest second moment.
struct AdamOp {
  double rate = 0.001, beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-7;
  bool amsgrad = false;

  constexpr std::size_t slot_count() const { return amsgrad ? 3 : 2; }

  template <class T>
  struct Rule {
    T rate, rest_1, rest_2, epsilon;
    // V is T or a SIMD vector of T. Not instrumented: see square_root.hpp.
    template <class V>
    [[gnu::always_inline, gnu::no_instrument_function]] void operator()(V& w, const V& g, V& m,
                                                                        V& v) const {
      m += (g - m) * rest_1;
      v += (g * g - v) * rest_2;
      descend(w, m, v);
    }
    template <class V>
    [[gnu::always_inline, gnu::no_instrument_function]] void operator()(V& w, const V& g, V& m,
                                                                        V& v, V& largest) const {
      m += (g - m) * rest_1;
      v += (g * g - v) * rest_2;
      largest = largest > v ? largest : v;
      descend(w, m, largest);
    }
    template <class V>
    [[gnu::always_inline, gnu::no_instrument_function]] void descend(V& w, const V& m,
                                                                     const V& v) const {
      V root = v;
      detail::sqrt_in_place(root);
      w -= rate * m / (root + epsilon);
    }
  };
  template <class T>
  constexpr Rule<T> rule() const {
    return {static_cast<T>(rate), static_cast<T>(1 - beta_1), static_cast<T>(1 - beta_2),
            static_cast<T>(epsilon)};
  }
  bool operator==(const AdamOp&) const = default;
};

namespace detail {

/// \throws UsageError if a beta is outside [0, 1) or epsilon is not positive.
inline void check_adam(std::string_view name, double beta_1, double beta_2, double epsilon) {
  for (const double beta : {beta_1, beta_2})
    if (!(beta >= 0 && beta < 1))
      throw UsageError("{} beta {}: must be in [0, 1); 0.9 and 0.999 are usual", name, beta);
  check_epsilon(name, epsilon);
}

/// The op of update `step`, counted from 1, with the bias correction of both moments in the rate.
inline AdamOp adam_op(double rate, std::uint64_t step, double beta_1, double beta_2, double epsilon,
                      bool amsgrad) {
  const auto t = static_cast<double>(step);
  const double correction = std::sqrt(1 - std::pow(beta_2, t)) / (1 - std::pow(beta_1, t));
  return {rate * correction, beta_1, beta_2, epsilon, amsgrad};
}

/// Keras' names of the slots.
constexpr std::string_view adam_slot_name(std::size_t i) {
  constexpr std::array<std::string_view, 3> names{"momentum", "velocity", "velocity_hat"};
  return names[i];
}

}  // namespace detail

/// Keras' Adam (Kingma and Ba, 2014). t is the number of the update, counted from 1. With `amsgrad`
/// (Reddi et al., 2018) the largest v so far replaces v in the last formula.
///
///     m += (g - m)(1 - beta_1)
///     v += (g^2 - v)(1 - beta_2)
///     w -= rate sqrt(1 - beta_2^t) / (1 - beta_1^t) * m / (sqrt(v) + epsilon)
///
/// \code
///   ls::Adam{.learning_rate = 3e-4}
/// \endcode
struct Adam {
  static constexpr std::string_view name = "adam";
  Schedule learning_rate = 0.001;
  double beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-7;
  bool amsgrad = false;
  double weight_decay = 0;
  UpdateOptions with = {};

  /// \throws UsageError if a beta is outside [0, 1) or epsilon is not positive; see also
  /// UpdateOptions.
  void check() const {
    detail::check_update_options(name, weight_decay, with);
    detail::check_adam(name, beta_1, beta_2, epsilon);
  }
  std::size_t slot_count() const { return amsgrad ? 3 : 2; }
  static constexpr std::string_view slot_name(std::size_t i) { return detail::adam_slot_name(i); }
  /// The hyperparameters except the rate, which the processes of a job compare.
  std::array<std::pair<std::string_view, double>, 4> numbers() const {
    return {{{"beta_1", beta_1},
             {"beta_2", beta_2},
             {"epsilon", epsilon},
             {"amsgrad", amsgrad ? 1 : 0}}};
  }
  AdamOp op(double rate, std::uint64_t step) const {
    return detail::adam_op(rate, step, beta_1, beta_2, epsilon, amsgrad);
  }
};

static_assert(Optimizer<Adam> && ElementwiseUpdate<AdamOp>);

}  // namespace lockstep
