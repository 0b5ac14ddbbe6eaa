/// \file
/// Keras' regularizers as values. Invariant: a penalty is sum(l1 |w| + l2 w^2), without a factor of
/// 1/2.
#pragma once

#include "lockstep/core/parameter.hpp"
#include "lockstep/layers/options.hpp"

namespace lockstep {

/// Penalty l1 * sum |w|.
struct L1 {
  double l1 = 0.01;
  constexpr Penalty penalty() const { return {l1, 0}; }
};
/// Penalty l2 * sum w^2; its gradient is 2 l2 w.
struct L2 {
  double l2 = 0.01;
  constexpr Penalty penalty() const { return {0, l2}; }
};
/// Both penalties: l1 * sum |w| + l2 * sum w^2.
struct L1L2 {
  double l1 = 0, l2 = 0;
  constexpr Penalty penalty() const { return {l1, l2}; }
};

/// A structural type with `Penalty penalty() const`.
template <class R>
concept RegularizerPolicy = requires(const R& r) {
  { r.penalty() } -> std::same_as<Penalty>;
};

/// Option created by `kernel_regularizer`.
template <class R>
struct KernelRegularizer {
  R rule;
};
/// Option created by `bias_regularizer`.
template <class R>
struct BiasRegularizer {
  R rule;
};
/// Adds the penalty of the kernel to the loss: `Dense<10, kernel_regularizer(L2{1e-4})>`.
template <RegularizerPolicy R>
constexpr KernelRegularizer<R> kernel_regularizer(R rule) {
  return {rule};
}
/// Adds the penalty of the bias to the loss.
template <RegularizerPolicy R>
constexpr BiasRegularizer<R> bias_regularizer(R rule) {
  return {rule};
}

namespace detail {

template <class O>
inline constexpr bool is_kernel_regularizer = false;
template <class R>
inline constexpr bool is_kernel_regularizer<KernelRegularizer<R>> = true;
template <class O>
inline constexpr bool is_bias_regularizer = false;
template <class R>
inline constexpr bool is_bias_regularizer<BiasRegularizer<R>> = true;

/// The penalty of the kernel among Options; zero without one.
template <auto... Options>
constexpr Penalty kernel_penalty() {
  Penalty p;
  [[maybe_unused]] auto visit = [&]<auto O>() {
    if constexpr (is_kernel_regularizer<std::remove_cvref_t<decltype(O)>>) p = O.rule.penalty();
  };
  (visit.template operator()<Options>(), ...);
  return p;
}
/// The penalty of the bias among Options; zero without one.
template <auto... Options>
constexpr Penalty bias_penalty() {
  Penalty p;
  [[maybe_unused]] auto visit = [&]<auto O>() {
    if constexpr (is_bias_regularizer<std::remove_cvref_t<decltype(O)>>) p = O.rule.penalty();
  };
  (visit.template operator()<Options>(), ...);
  return p;
}

}  // namespace detail
}  // namespace lockstep
