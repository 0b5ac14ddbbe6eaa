/// \file
/// Gated recurrent units.
#pragma once

#include "lockstep/layers/recurrent/recurrent_options.hpp"

namespace lockstep {

/// With the gates z, r, h in this order, for each step s: z and r = R(x_s kernel + h recurrent_kernel
/// + bias), the candidate is A(x_s kernel + r (h recurrent_kernel + bias[1]) + bias[0]), and h = z h
/// + (1 - z) candidate, where A is the activation and R that of the gates. Without `reset_after` the
/// candidate is A(x_s kernel + (r h) recurrent_kernel + bias).
template <bool ResetAfter = true, class A = TanhOp, class R = SigmoidOp>
struct GRUOp {
  static constexpr std::string_view members = "layer activation recurrent_activation reset_after";
  static constexpr int gates = 3, z_count = 4, states = 1, biases = ResetAfter ? 2 : 1;
  static constexpr bool resets_before = !ResetAfter;
  static constexpr int slot_of(int gate) { return ResetAfter && gate == 2 ? 3 : gate; }

  detail::RecurrentLayer layer;
  A activation{};
  R recurrent_activation{};
  bool reset_after = ResetAfter;

  constexpr Shape out() const { return layer.out(); }
  constexpr std::size_t weights() const { return detail::recurrent_weights(*this); }
  constexpr double flops() const { return layer.flops(gates); }
  constexpr bool has_gradient(std::size_t operand) const { return layer.has_gradient(operand); }
  constexpr void read_masks(std::size_t of_steps, std::size_t) { layer.masked = of_steps > 0; }
  bool operator==(const GRUOp&) const = default;

  /// The gates, and in z[3] the state times the reset gate, before its product with `factor`, the
  /// mask of dropout. For GRUs that reset before the product.
  template <class V, class F>
  [[gnu::always_inline, gnu::no_instrument_function]] static void reset(const F& f, V (&z)[z_count],
                                                                        const V& h,
                                                                        const V& factor) {
    V update, r;
    detail::activate(f.gate, z[0], update, z[0]);
    detail::activate(f.gate, z[1], r, z[1]);
    z[3] = r * h * factor;
  }
  /// `z`: the sums, then what backward takes; if the reset comes before, after `reset`. `state`: h
  /// before the step, then after it.
  template <class V, class F>
  [[gnu::always_inline, gnu::no_instrument_function]] static void forward(const F& f,
                                                                          V (&z)[z_count],
                                                                          V (&state)[states]) {
    V update, r, candidate;
    if constexpr (ResetAfter) {
      detail::activate(f.gate, z[0], update, z[0]);
      detail::activate(f.gate, z[1], r, z[1]);
      z[2] += r * z[3];
    } else {
      detail::recall(f.gate, update, z[0]);
    }
    detail::activate(f.output, z[2], candidate, z[2]);
    state[0] = update * state[0] + (1.0f - update) * candidate;
  }
  /// `z`: what forward kept, then the gradients of the sums; z[1] is left to `reset_backward` if the
  /// reset comes before. `d`: the gradient of the state after the step, then that of the state
  /// `before` it, without the products.
  template <class V, class F>
  [[gnu::always_inline, gnu::no_instrument_function]] static void backward(
      const F& f, V (&z)[z_count], const V (&before)[states], const V (&)[states], V (&d)[states]) {
    V update, candidate, slope;
    detail::recall(f.gate, update, z[0]);
    detail::recall(f.output, candidate, z[2]);
    f.output.slope(slope, z[2]);
    z[2] = d[0] * (1.0f - update) * slope;
    f.gate.slope(slope, z[0]);
    z[0] = d[0] * (before[0] - candidate) * slope;
    d[0] *= update;
    if constexpr (ResetAfter) {
      V r;
      detail::recall(f.gate, r, z[1]);
      f.gate.slope(slope, z[1]);
      z[1] = z[2] * z[3] * slope;
      z[3] = z[2] * r;
    }
  }
  /// With `dq`, the gradient of z[3] of `reset`: that of the sum z[1], and d += that of h.
  template <class V, class F>
  [[gnu::always_inline, gnu::no_instrument_function]] static void reset_backward(
      const F& f, V (&z)[z_count], const V& h, const V& factor, const V& dq, V& d) {
    V r, slope;
    detail::recall(f.gate, r, z[1]);
    f.gate.slope(slope, z[1]);
    d += dq * factor * r;
    z[1] = dq * factor * h * slope;
  }
};

/// Option created by `reset_after`.
struct ResetAfter {
  bool on = true;
};
/// Whether the reset gate of a GRU is applied after the product with the recurrent kernel, the
/// default, or before.
constexpr ResetAfter reset_after(bool on) { return {on}; }

/// Keras' GRU (Cho et al., 2014). Input (steps, features), output (Units), or (steps, Units) with
/// ls::return_sequences; parameters `kernel` (features, 3 Units), `recurrent_kernel` (Units, 3
/// Units) and `bias` (2, 3 Units), or (3 Units) with ls::reset_after(false). Options:
/// ls::return_sequences, ls::return_state, ls::initial_state, ls::go_backwards, ls::dropout,
/// ls::recurrent_dropout, an activation (tanh), ls::recurrent_activation (sigmoid), ls::no_bias,
/// ls::reset_after(false), initializers, regularizers.
/// \code
///   struct Net : ls::Sequential<ls::Input<48, 6>, ls::GRU<32, ls::return_sequences>, ls::GRU<32>,
///                               ls::Dense<1>> {};
/// \endcode
template <int Units, auto... Options>
struct GRU : detail::RecurrentLayerOf<1, Units, Options...> {
  static constexpr std::string_view name = "gru";
  static constexpr bool resets_after = detail::option<ResetAfter, Options...>({}).on;
  using Cell = GRUOp<resets_after, detail::ActivationOpOf<Options...>,
                     detail::RecurrentActivationOpOf<Options...>>;

  template <std::same_as<Shape>... More>
  static constexpr Cell op(Shape in, More...) {
    return {GRU::layer(in), detail::activation_op<Options...>(),
            detail::recurrent_activation_op<Options...>()};
  }
  template <std::same_as<Shape>... More>
  static constexpr std::array<Parameter, 3> parameters(Shape in, More...) {
    return GRU::parameters_of(in, 3, resets_after ? shape(2, 3 * Units) : shape(3 * Units),
                              &detail::initialize<zeros>);
  }

  static_assert(sizeof(detail::CheckRecurrentOptions<true, ResetAfter,
                                                     std::remove_cvref_t<decltype(Options)>...>) >
                0);
  static_assert(
      sizeof(detail::CheckRecurrentActivations<detail::ActivationOpOf<Options...>,
                                               detail::RecurrentActivationOpOf<Options...>>) > 0);
};

static_assert(Layer<GRU<8>> && GRU<8>::op(shape(5, 3)).weights() == 3 * 8 * (3 + 8 + 2) &&
              GRU<8, reset_after(false)>::op(shape(5, 3)).weights() == 3 * 8 * (3 + 8 + 1));

}  // namespace lockstep
