/// \file
/// Long short-term memory.
#pragma once

#include "lockstep/layers/recurrent/recurrent_options.hpp"

namespace lockstep {

/// With z = x_s kernel + h recurrent_kernel + bias in the order i, f, c, o of the gates, for each
/// step s: c = R(z_f) c + R(z_i) A(z_c) and h = R(z_o) A(c), where A is the activation and R that of
/// the gates; y = h of the last step, or of all steps.
template <class A = TanhOp, class R = SigmoidOp>
struct LSTMOp {
  static constexpr std::string_view members = "layer activation recurrent_activation";
  static constexpr int gates = 4, z_count = 4, states = 2, biases = 1;
  static constexpr bool resets_before = false;
  static constexpr int slot_of(int gate) { return gate; }

  detail::RecurrentLayer layer;
  A activation{};
  R recurrent_activation{};

  constexpr Shape out() const { return layer.out(); }
  constexpr std::size_t weights() const { return detail::recurrent_weights(*this); }
  constexpr double flops() const { return layer.flops(gates); }
  constexpr bool has_gradient(std::size_t operand) const { return layer.has_gradient(operand); }
  constexpr void read_masks(std::size_t of_steps, std::size_t) { layer.masked = of_steps > 0; }
  bool operator==(const LSTMOp&) const = default;

  /// `z`: the sums, then what backward takes. `state`: h and c before the step, then after it.
  template <class V, class F>
  [[gnu::always_inline, gnu::no_instrument_function]] static void forward(const F& f,
                                                                          V (&z)[z_count],
                                                                          V (&state)[states]) {
    V i, forget, candidate, o, a;
    detail::activate(f.gate, z[0], i, z[0]);
    detail::activate(f.gate, z[1], forget, z[1]);
    detail::activate(f.output, z[2], candidate, z[2]);
    detail::activate(f.gate, z[3], o, z[3]);
    state[1] = forget * state[1] + i * candidate;
    f.output.value(a, state[1]);
    state[0] = o * a;
  }
  /// `z`: what forward kept, then the gradients of the sums. `d`: the gradient of the state `after`
  /// the step, then that of the state `before` it, without the products.
  template <class V, class F>
  [[gnu::always_inline, gnu::no_instrument_function]] static void backward(
      const F& f, V (&z)[z_count], const V (&before)[states], const V (&after)[states],
      V (&d)[states]) {
    V i, forget, candidate, o, a, kept, slope;
    detail::recall(f.gate, i, z[0]);
    detail::recall(f.gate, forget, z[1]);
    detail::recall(f.output, candidate, z[2]);
    detail::recall(f.gate, o, z[3]);
    detail::activate(f.output, kept, a, after[1]);
    f.output.slope(slope, kept);
    const V dc = d[1] + d[0] * o * slope;
    f.gate.slope(slope, z[3]);
    z[3] = d[0] * a * slope;
    f.gate.slope(slope, z[0]);
    z[0] = dc * candidate * slope;
    f.gate.slope(slope, z[1]);
    z[1] = dc * before[1] * slope;
    f.output.slope(slope, z[2]);
    z[2] = dc * i * slope;
    d[0] = V{};
    d[1] = dc * forget;
  }
};

/// Option created by `unit_forget_bias`.
struct UnitForgetBias {
  bool on = true;
};
/// Whether the bias of an LSTM's forget gate begins at 1, the default.
constexpr UnitForgetBias unit_forget_bias(bool on) { return {on}; }

namespace detail {

/// The bias of an LSTM: ones in the second quarter, which is the forget gate's, the values of
/// `Rule` elsewhere.
template <Initializer Rule>
void initialize_forget_bias(Philox& g, const Shape& all, Fans fans, std::span<double> values) {
  Rule(g, all, fans, values);
  const std::size_t units = values.size() / 4;
  for (double& v : values.subspan(units, units)) v = 1;
}

}  // namespace detail

/// Keras' LSTM (Hochreiter and Schmidhuber, 1997). Input (steps, features), output (Units), or
/// (steps, Units) with ls::return_sequences; parameters `kernel` (features, 4 Units),
/// `recurrent_kernel` (Units, 4 Units) and `bias` (4 Units). Options: ls::return_sequences,
/// ls::return_state, ls::initial_state, ls::go_backwards, ls::dropout, ls::recurrent_dropout, an
/// activation (tanh), ls::recurrent_activation (sigmoid), ls::no_bias, ls::unit_forget_bias(false),
/// initializers, regularizers.
/// \code
///   struct Net : ls::Sequential<ls::Input<80>, ls::Embedding<20'000, 64>,
///                               ls::LSTM<64, ls::dropout(0.2)>, ls::Dense<1, ls::sigmoid>> {};
/// \endcode
template <int Units, auto... Options>
struct LSTM : detail::RecurrentLayerOf<2, Units, Options...> {
  static constexpr std::string_view name = "lstm";
  using Cell =
      LSTMOp<detail::ActivationOpOf<Options...>, detail::RecurrentActivationOpOf<Options...>>;

  template <std::same_as<Shape>... More>
  static constexpr Cell op(Shape in, More...) {
    return {LSTM::layer(in), detail::activation_op<Options...>(),
            detail::recurrent_activation_op<Options...>()};
  }
  template <std::same_as<Shape>... More>
  static constexpr std::array<Parameter, 3> parameters(Shape in, More...) {
    constexpr Initializer given =
        detail::bias_initializer_of<Options...>(&detail::initialize<zeros>);
    auto all = LSTM::parameters_of(in, 4, shape(4 * Units), given);
    if (detail::option<UnitForgetBias, Options...>({}).on)
      all[2].initializer = &detail::initialize_forget_bias<given>;
    return all;
  }

  static_assert(sizeof(detail::CheckRecurrentOptions<true, UnitForgetBias,
                                                     std::remove_cvref_t<decltype(Options)>...>) >
                0);
  static_assert(
      sizeof(detail::CheckRecurrentActivations<detail::ActivationOpOf<Options...>,
                                               detail::RecurrentActivationOpOf<Options...>>) > 0);
};

static_assert(Layer<LSTM<8>> && LSTM<8, return_sequences>::op(shape(5, 3)).out() == shape(5, 8) &&
              LSTM<8>::op(shape(5, 3)).weights() == 4 * 8 * (3 + 8 + 1));

}  // namespace lockstep
