/// \file
/// Fully connected recurrence.
#pragma once

#include "lockstep/layers/recurrent/recurrent_options.hpp"

namespace lockstep {

/// For each step s: h = A(x_s kernel + h recurrent_kernel + bias), where A is the activation; y = h of
/// the last step, or of all steps.
template <class A = TanhOp>
struct SimpleRNNOp {
  static constexpr std::string_view members = "layer activation";
  static constexpr int gates = 1, z_count = 1, states = 1, biases = 1;
  static constexpr bool resets_before = false;
  static constexpr int slot_of(int gate) { return gate; }

  detail::RecurrentLayer layer;
  A activation{};

  constexpr Shape out() const { return layer.out(); }
  constexpr std::size_t weights() const { return detail::recurrent_weights(*this); }
  constexpr double flops() const { return layer.flops(gates); }
  constexpr bool has_gradient(std::size_t operand) const { return layer.has_gradient(operand); }
  constexpr void read_masks(std::size_t of_steps, std::size_t) { layer.masked = of_steps > 0; }
  bool operator==(const SimpleRNNOp&) const = default;

  /// `z`: the sum, then what backward takes. `state`: h before the step, then after it.
  template <class V, class F>
  [[gnu::always_inline, gnu::no_instrument_function]] static void forward(const F& f,
                                                                          V (&z)[z_count],
                                                                          V (&state)[states]) {
    detail::activate(f.output, z[0], state[0], z[0]);
  }
  /// `z`: what forward kept, then the gradient of the sum. `d`: the gradient of h after the step,
  /// then that of h before it, without the product.
  template <class V, class F>
  [[gnu::always_inline, gnu::no_instrument_function]] static void backward(
      const F& f, V (&z)[z_count], const V (&)[states], const V (&)[states], V (&d)[states]) {
    V slope;
    f.output.slope(slope, z[0]);
    z[0] = d[0] * slope;
    d[0] = V{};
  }
};

/// Keras' SimpleRNN. Input (steps, features), output (Units), or (steps, Units) with
/// ls::return_sequences; parameters `kernel` (features, Units), `recurrent_kernel` (Units, Units) and
/// `bias` (Units). Options: ls::return_sequences, ls::return_state, ls::initial_state,
/// ls::go_backwards, ls::dropout, ls::recurrent_dropout, an activation (tanh), ls::no_bias,
/// initializers, regularizers.
/// \code
///   struct Net : ls::Sequential<ls::Input<30, 4>, ls::SimpleRNN<16>, ls::Dense<1>> {};
/// \endcode
template <int Units, auto... Options>
struct SimpleRNN : detail::RecurrentLayerOf<1, Units, Options...> {
  static constexpr std::string_view name = "simple_rnn";
  using Cell = SimpleRNNOp<detail::ActivationOpOf<Options...>>;

  template <std::same_as<Shape>... More>
  static constexpr Cell op(Shape in, More...) {
    return {SimpleRNN::layer(in), detail::activation_op<Options...>()};
  }
  template <std::same_as<Shape>... More>
  static constexpr std::array<Parameter, 3> parameters(Shape in, More...) {
    return SimpleRNN::parameters_of(in, 1, shape(Units), &detail::initialize<zeros>);
  }

  static_assert(sizeof(detail::CheckRecurrentOptions<false, void,
                                                     std::remove_cvref_t<decltype(Options)>...>) >
                0);
  static_assert(sizeof(detail::CheckRecurrentActivations<detail::ActivationOpOf<Options...>>) > 0);
};

static_assert(Layer<SimpleRNN<8>> && SimpleRNN<8>::op(shape(5, 3)).weights() == 8 * (3 + 8 + 1));

}  // namespace lockstep
