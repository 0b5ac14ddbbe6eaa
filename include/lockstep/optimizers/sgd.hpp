/// \file
/// Gradient descent, with or without momentum. Invariant: as in Keras, the momentum accumulates
/// rate * g, so that a new rate does not scale past gradients.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/optimizers/schedule.hpp"
#include "lockstep/optimizers/update_options.hpp"

namespace lockstep {

/// One update of SGD. Slot: the momentum, if it is above 0.
struct SGDOp {
  double rate = 0.01, momentum = 0;
  bool nesterov = false;

  constexpr std::size_t slot_count() const { return momentum > 0 ? 1 : 0; }

  template <class T>
  struct Rule {
    T rate, momentum;
    bool nesterov;
    // V is T or a SIMD vector of T.
    template <class V>
    [[gnu::always_inline]] void operator()(V& w, const V& g) const {
      w -= rate * g;
    }
    template <class V>
    [[gnu::always_inline]] void operator()(V& w, const V& g, V& v) const {
      v = momentum * v - rate * g;
      w += nesterov ? momentum * v - rate * g : v;
    }
  };
  template <class T>
  constexpr Rule<T> rule() const {
    return {static_cast<T>(rate), static_cast<T>(momentum), nesterov};
  }
  bool operator==(const SGDOp&) const = default;
};

/// Keras' SGD. `weight_decay` d, here and in all optimizers: w -= d rate w before the update.
///
///     w -= rate g                            without momentum
///     v = m v - rate g, w += v               with momentum m
///     v = m v - rate g, w += m v - rate g    with Nesterov momentum
///
/// \code
///   ls::SGD{.learning_rate = 0.1, .momentum = 0.9, .nesterov = true}
/// \endcode
struct SGD {
  static constexpr std::string_view name = "sgd";
  Schedule learning_rate = 0.01;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
  UpdateOptions with = {};

  /// \throws UsageError if the momentum is outside [0, 1), or `nesterov` is set without momentum;
  /// see also UpdateOptions.
  void check() const {
    detail::check_update_options(name, weight_decay, with);
    if (!(momentum >= 0 && momentum < 1))
      throw UsageError("sgd momentum {}: must be in [0, 1); 0.9 is usual", momentum);
    if (nesterov && momentum == 0)
      throw UsageError("sgd nesterov: needs momentum; write .momentum = 0.9 too");
  }
  std::size_t slot_count() const { return momentum > 0 ? 1 : 0; }
  static constexpr std::string_view slot_name(std::size_t) { return "momentum"; }
  /// Whether an update by a gradient of 0 changes nothing, so that it may be left out.
  bool skips_zeros() const { return momentum == 0 && weight_decay == 0; }
  /// The hyperparameters except the rate, which the processes of a job compare.
  std::array<std::pair<std::string_view, double>, 2> numbers() const {
    return {{{"momentum", momentum}, {"nesterov", nesterov ? 1 : 0}}};
  }
  SGDOp op(double rate, std::uint64_t) const { return {rate, momentum, nesterov}; }
};

static_assert(Optimizer<SGD> && ElementwiseUpdate<SGDOp>);

}  // namespace lockstep
