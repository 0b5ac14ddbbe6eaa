/// \file
/// Options of recurrent layers, and what LSTM, GRU and SimpleRNN have in common.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>

#include "lockstep/core/row_part.hpp"
#include "lockstep/layers/activation_option.hpp"
#include "lockstep/layers/affine.hpp"
#include "lockstep/layers/named_rules.hpp"
#include "lockstep/layers/regularization/dropout.hpp"

namespace lockstep {

/// Option `return_sequences`.
struct ReturnSequences {
  bool on = true;
};
/// The output has all steps, not the last one alone: `LSTM<64, ls::return_sequences>`.
inline constexpr ReturnSequences return_sequences{};

/// Option `go_backwards`.
struct GoBackwards {
  bool on = true;
};
/// The layer reads the last step first. With `return_sequences` step 0 of the output is the one
/// computed first, as in Keras.
inline constexpr GoBackwards go_backwards{};

/// Option `zero_output_for_mask`.
struct ZeroOutputForMask {
  bool on = true;
};
/// The output of a padded step is 0, not that of the step before.
inline constexpr ZeroOutputForMask zero_output_for_mask{};

/// Option `return_state`.
struct ReturnState {
  bool on = true;
};
/// The layer has its states after the last step as further results: Keras' `return_state`. In a Graph
/// they are "r/h" and, of an LSTM, "r/c", each (units); "r" is the result without the option. A
/// padded last step leaves them as they are. As a layer of a Sequential it has one row with all.
/// \code
///   Let<"r", From<"x">, LSTM<64, return_state>>, Let<"y", From<"r/h", "r/c">, Concatenate>
/// \endcode
inline constexpr ReturnState return_state{};

/// Option `initial_state`.
struct InitialState {
  bool on = true;
};
/// The operands after the input are the states before the first step, each (units): h and, of an
/// LSTM, c. Keras' call argument `initial_state`. Without it they are 0.
/// \code
///   Let<"e", From<"source">, LSTM<64, return_state>>,
///   Let<"d", From<"target", "e/h", "e/c">, LSTM<64, return_sequences, initial_state>>
/// \endcode
inline constexpr InitialState initial_state{};

/// Option created by `recurrent_dropout`.
struct RecurrentDropout {
  Rate rate{0.0f};
};
/// `dropout` for the state. Each gate then has masks of its own, for the input too, as in Keras.
constexpr RecurrentDropout recurrent_dropout(Rate share) { return {share}; }

/// Option created by `recurrent_activation`.
template <class L>
struct RecurrentActivation {
  using layer = L;
};
/// The activation of the gates: `LSTM<64, ls::recurrent_activation(ls::relu6)>`.
template <class L>
constexpr RecurrentActivation<L> recurrent_activation(Activation<L>) {
  return {};
}

/// Option created by `recurrent_initializer`.
template <class I>
struct RecurrentInitializer {
  I rule;
};
/// The initializer of the recurrent kernel.
template <InitializerPolicy I>
constexpr RecurrentInitializer<I> recurrent_initializer(I rule) {
  return {rule};
}

/// Option created by `recurrent_regularizer`.
template <class R>
struct RecurrentRegularizer {
  R rule;
};
/// Adds the penalty of the recurrent kernel to the loss.
template <RegularizerPolicy R>
constexpr RecurrentRegularizer<R> recurrent_regularizer(R rule) {
  return {rule};
}

namespace detail {

/// The numbers of a recurrent op, whatever its cell. Step s of the loop reads the input's step
/// time(s).
struct RecurrentLayer {
  static constexpr std::string_view members =
      "in units use_bias return_sequences go_backwards dropout recurrent_dropout "
      ".zero_output_for_mask .masked ?output_order ?results ?operands";
  Shape in;  // (steps, features)
  int units = 1;
  bool bias = true, return_sequences = false, go_backwards = false;
  float dropout = 0, recurrent_dropout = 0;
  bool zero_output = false;  // padded steps of the output are 0
  bool masked = false;       // the operand after the others is a mask
  int output_order = 1;      // -1: goes backwards, but returns the steps in the order of the input
  int results = 1;           // the steps or the last one, then the states that are returned
  int operands = 1;          // the input, then the initial states

  /// The first result. If there are several, they are a row in which the states come last.
  constexpr Shape output() const { return return_sequences ? shape(in[0], units) : shape(units); }
  constexpr Shape out() const { return results > 1 ? shape(static_cast<int>(row())) : output(); }
  constexpr std::size_t row() const {
    return output().size() + static_cast<std::size_t>(results - 1) * width();
  }
  constexpr std::size_t mask_operand() const { return static_cast<std::size_t>(operands); }
  constexpr bool has_gradient(std::size_t operand) const { return operand < mask_operand(); }
  constexpr bool starts_at_zero() const { return operands == 1; }
  /// Whether the output of step s of the loop is 0: at a padded step with `zero_output`, and before the
  /// first step that counts, whatever the initial state is. `mask` (steps) is that of the example.
  template <class A>
  constexpr bool has_no_output(const A* mask, std::size_t s) const {
    if (mask == nullptr || mask[time(s)] != A(0.0f)) return false;
    if (zero_output) return true;
    while (s > 0 && mask[time(s - 1)] == A(0.0f)) --s;
    return s == 0;
  }
  constexpr std::size_t steps() const { return static_cast<std::size_t>(in[0]); }
  constexpr std::size_t features() const { return static_cast<std::size_t>(in[1]); }
  constexpr std::size_t width() const { return static_cast<std::size_t>(units); }
  constexpr std::size_t time(std::size_t s) const { return go_backwards ? steps() - 1 - s : s; }
  /// The step of the output that step s of the loop writes.
  constexpr std::size_t output_step(std::size_t s) const { return output_order < 0 ? time(s) : s; }
  /// Elements of the kernel and the recurrent kernel of `gates` gates.
  constexpr std::size_t matrices(int gates) const {
    return static_cast<std::size_t>(gates) * width() * (features() + width());
  }
  constexpr double flops(int gates) const {
    return 2.0 * static_cast<double>(steps()) * static_cast<double>(matrices(gates));
  }
  bool operator==(const RecurrentLayer&) const = default;
};

/// Whether O is the op of a recurrent layer. Kernels know from it:
///
/// - `read_masks`: there is a mask of the steps
/// - `gates`, in the order of the kernel's columns; `states`, h and, in an LSTM, c
/// - `z_count`: sums of products for each unit; gate g of the kernel adds to slot g, gate g of the
///   recurrent kernel to slot_of(g)
/// - `resets_before`: the last gate multiplies the state by the reset gate before its product
/// - `biases`: vectors of the bias, each of gates * units; the second one is for the recurrent
///   product
/// - `forward` and `backward`: the formulas of one unit, for numbers and for vectors of numbers
template <class O>
concept IsRecurrent = requires(const O& op) {
  { op.layer } -> std::convertible_to<RecurrentLayer>;
  O::z_count;
};

/// Weights of a recurrent op: kernel (features, gates * units), recurrent kernel (units, gates *
/// units), bias.
template <class O>
constexpr std::size_t recurrent_weights(const O& op) {
  return op.layer.matrices(O::gates) +
         (op.layer.bias ? static_cast<std::size_t>(O::gates * O::biases) * op.layer.width() : 0);
}

/// y = f(z), and in `kept` what the derivative of f takes: y or z.
template <class F, class V>
[[gnu::always_inline, gnu::no_instrument_function]] inline void activate(const F& f, V& kept, V& y,
                                                                         const V& z) {
  const V sum = z;  // may be `kept`
  f.value(y, sum);
  kept = F::from_y ? y : sum;
}
/// y from what `activate` kept.
template <class F, class V>
[[gnu::always_inline, gnu::no_instrument_function]] inline void recall(const F& f, V& y,
                                                                       const V& kept) {
  if constexpr (F::from_y)
    y = kept;
  else
    f.value(y, kept);
}

/// Whether O is an option of every recurrent layer.
template <class O>
inline constexpr bool is_recurrent_option =
    is_affine_option<O> || is_rule_for<O, RecurrentInitializer> ||
    is_rule_for<O, RecurrentRegularizer> ||
    is_any_of<O, ReturnSequences, ReturnState, InitialState, GoBackwards, ZeroOutputForMask,
              DropoutWithin, RecurrentDropout>;
template <class O>
inline constexpr bool is_recurrent_activation = false;
template <class L>
inline constexpr bool is_recurrent_activation<RecurrentActivation<L>> = true;

/// The layer of the first option, or else Default.
template <class Default, class... Options>
struct RecurrentActivationAmong {
  using type = Default;
};
template <class Default, class O, class... Options>
struct RecurrentActivationAmong<Default, O, Options...>
    : RecurrentActivationAmong<Default, Options...> {};
template <class Default, class L, class... Options>
struct RecurrentActivationAmong<Default, RecurrentActivation<L>, Options...> {
  using type = L;
};

/// The op of the activation, by default tanh, and that of the gates, by default sigmoid, with the
/// options of their layers.
template <auto... Options>
constexpr auto activation_op() {
  using Given = activation_of<Options...>;
  return std::conditional_t<std::is_void_v<Given>, Tanh, Given>::op(Shape{});
}
template <auto... Options>
constexpr auto recurrent_activation_op() {
  return RecurrentActivationAmong<Sigmoid, std::remove_cvref_t<decltype(Options)>...>::type::op(
      Shape{});
}
template <auto... Options>
using ActivationOpOf = decltype(activation_op<Options...>());
template <auto... Options>
using RecurrentActivationOpOf = decltype(recurrent_activation_op<Options...>());

template <int Units, DropoutWithin Dropped, RecurrentDropout StateDropped, class... Options>
struct CheckRecurrent {
  static_assert(sizeof(CheckOneActivation<Options...>) > 0);
  static_assert(Units > 0, "lockstep::Recurrent: units must be at least 1; write LSTM<units>");
  static_assert(Dropped.rate.value >= 0 && Dropped.rate.value < 1 && StateDropped.rate.value >= 0 &&
                    StateDropped.rate.value < 1,
                "lockstep::Recurrent: dropout and recurrent_dropout must be in [0, 1); write "
                "dropout(0.2)");
};
/// `Own`: the option of this layer only.
template <bool HasGates, class Own, class... Options>
struct CheckRecurrentOptions {
  static_assert(
      ((is_recurrent_option<Options> || std::is_same_v<Options, Own> ||
        (HasGates && is_recurrent_activation<Options>)) &&
       ...),
      "lockstep::Recurrent: an option is not supported; it accepts return_sequences, "
      "return_state, initial_state, go_backwards, dropout, recurrent_dropout, activations, "
      "use_bias, initializers and regularizers, LSTM also unit_forget_bias, GRU reset_after");
};
template <class... Ops>
struct CheckRecurrentActivations {
  static_assert((Pointwise<Ops> && ...),
                "lockstep::Recurrent: an activation is not element-wise; use it as a layer after "
                "this one");
};

/// Names of the states, in the order of Keras.
inline constexpr std::string_view state_names[]{"h", "c"};

/// Base of the recurrent layers with `States` states: all but the op and the parameters.
template <int States, int Units, auto... Options>
struct RecurrentLayerOf {
  static constexpr bool returns_state = option<ReturnState, Options...>({false}).on;
  static constexpr bool has_initial_state = option<InitialState, Options...>({false}).on;

  template <Shape In>
  struct Requires {
    static_assert(In.rank == 2,
                  "lockstep::Recurrent: the input does not have steps and features; put "
                  "Reshape<ls::shape(steps, features)> before it");
    static_assert(In.rank != 2 || !has_initial_state,
                  "lockstep::Recurrent: with ls::initial_state the states are operands after the "
                  "input; write Let<name, From<\"x\", \"h\">, GRU<...>> in a Graph, for an LSTM "
                  "From<\"x\", \"h\", \"c\">");
  };
  template <Shape, Shape>
  struct RequiresOperands {
    static_assert(
        States < 0,
        "lockstep::Recurrent: the operands do not fit; the input is (steps, features), and "
        "each initial state has as many elements as the layer has units");
  };
  template <std::same_as<Shape>... More>
    requires(sizeof...(More) == 0 || (has_initial_state && sizeof...(More) == States))
  static constexpr bool accepts(Shape in, More... initial) {
    return in.rank == 2 && (sizeof...(More) > 0) == has_initial_state &&
           ((initial == shape(Units)) && ...);
  }
  /// The steps or the last one, then the states.
  template <std::same_as<Shape>... More>
    requires(returns_state)
  static constexpr std::array<RowPart, States + 1> results(Shape in, More...) {
    std::array<RowPart, States + 1> parts{RowPart{"", layer(in).output(), 0}};
    for (std::size_t k = 0; k < std::size_t{States}; ++k)
      parts[k + 1] = {state_names[k], shape(Units), parts[k].offset + parts[k].shape.size()};
    return parts;
  }
  static constexpr bool supports_masking = option<ReturnSequences, Options...>({false}).on;

 protected:
  static constexpr DropoutWithin dropped = option<DropoutWithin, Options...>({});
  static constexpr RecurrentDropout state_dropped = option<RecurrentDropout, Options...>({});
  static constexpr RecurrentLayer layer(Shape in) {
    return {in,
            Units,
            has_bias<Options...>(),
            option<ReturnSequences, Options...>({false}).on,
            option<GoBackwards, Options...>({false}).on,
            dropped.rate.value,
            state_dropped.rate.value,
            option<ZeroOutputForMask, Options...>({false}).on,
            false,
            1,
            returns_state ? States + 1 : 1,
            has_initial_state ? States + 1 : 1};
  }
  /// The parameters of `gates` gates; `bias` is the default initializer of a bias of this shape.
  static constexpr std::array<Parameter, 3> parameters_of(Shape in, int gates, Shape bias_shape,
                                                          Initializer bias) {
    const int columns = gates * Units;
    return {Parameter{"kernel",
                      shape(in[1], columns),
                      {in[1], columns},
                      kernel_initializer_of<Options...>(&initialize<glorot_uniform>),
                      kernel_penalty<Options...>(),
                      true,
                      true},
            Parameter{"recurrent_kernel",
                      shape(Units, columns),
                      {Units, columns},
                      initializer_for<RecurrentInitializer, Options...>(&initialize<orthogonal>),
                      penalty_for<RecurrentRegularizer, Options...>(),
                      true,
                      true},
            Parameter{"bias",
                      bias_shape,
                      {columns, columns},
                      bias_initializer_of<Options...>(bias),
                      bias_penalty<Options...>(),
                      true,
                      has_bias<Options...>()}};
  }

  static_assert(sizeof(CheckRecurrent<Units, dropped, state_dropped,
                                      std::remove_cvref_t<decltype(Options)>...>) > 0);
};

}  // namespace detail
}  // namespace lockstep
