/// \file
/// The interface of layers. Invariants: a layer is an empty type that does not depend on a device;
/// its op is a plain value with all that a kernel needs.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "lockstep/core/parameter.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/core/type_list.hpp"

namespace lockstep {

/// An aggregate of numbers with `operator==` and `out()`, the shape of its result. Usable as a
/// template argument.
///
/// - `std::size_t weights() const`, `state() const`: numbers of trainable and non-trainable values
///   that kernels read at `io.w` and `io.state`, on all devices; 0 if absent. They must equal the
///   totals of the layer's parameters(), or the model does not compile.
/// - `double flops() const`, optional: multiplications and additions of the forward pass of one
///   example.
/// - `bool has_gradient(std::size_t operand) const`, optional: false for an operand without a
///   gradient, such as a mask; its `io.dx[operand]` is null. All operands have one if absent.
template <class O>
concept Op = std::equality_comparable<O> && requires(const O& op) {
  { op.out() } -> std::same_as<Shape>;
};

namespace detail {
/// Number of trainable and non-trainable values that the kernels of an op read.
constexpr std::size_t weights_of(const auto& op) {
  if constexpr (requires { op.weights(); })
    return op.weights();
  else
    return 0;
}
constexpr std::size_t state_of(const auto& op) {
  if constexpr (requires { op.state(); })
    return op.state();
  else
    return 0;
}
/// Whether the result of an op has a derivative by this operand.
constexpr bool has_gradient(const auto& op, [[maybe_unused]] std::size_t operand) {
  if constexpr (requires { op.has_gradient(operand); })
    return op.has_gradient(operand);
  else
    return true;
}
}  // namespace detail

// One concept per requirement, so that detail::CheckLayer can report each in its own sentence.
template <class L>
concept HasName = requires {
  { L::name } -> std::convertible_to<std::string_view>;
};
template <class L>
concept HasAccepts = requires(Shape in) {
  { L::accepts(in) } -> std::same_as<bool>;
};
template <class L>
concept HasParameters = requires(Shape in) {
  { L::parameters(in).size() } -> std::convertible_to<std::size_t>;
};
template <class L>
concept HasOp = requires(Shape in) {
  { L::op(in) } -> Op;
};

/// A layer declaration: four static constexpr members.
///
/// - `name`: Keras' snake-case name; further layers of the same name are called `name_1`, `name_2`,
///   ...
/// - `accepts(in)`: whether the layer supports this input shape.
/// - `parameters(in)`: std::array of Parameter.
/// - `op(in)`: the Op.
///
/// Optional members: `results(in)`, std::array of RowPart, the parts of the row that the op computes, if
/// the layer has several results; their names and number do not depend on the shape. In a Graph,
/// `Let<"r", From<"x">, L>` names them "r/state", and a part without a name "r". `using activation =
/// L`, a layer without parameters that is applied to the
/// output and shares the name (void: none); `template <Shape In> struct Requires`, whose
/// static_assert replaces the generic error for an unsupported input.
/// \code
///   struct Scale {
///     static constexpr std::string_view name = "scale";
///     static constexpr bool accepts(Shape) { return true; }
///     static constexpr std::array<Parameter, 0> parameters(Shape) { return {}; }
///     static constexpr ScaleOp op(Shape in) { return {in}; }
///   };
/// \endcode
template <class L>
concept Layer = HasName<L> && HasAccepts<L> && HasParameters<L> && HasOp<L>;

/// A layer with a built-in activation.
template <class L>
concept HasActivation =
    requires { typename L::activation; } && !std::is_void_v<typename L::activation>;

namespace detail {
template <class L, class Operands>
inline constexpr bool accepts_operands = false;
template <class L, std::size_t... I>
  requires requires(std::array<Shape, sizeof...(I)> in) {
    { L::accepts(in[I]...) } -> std::same_as<bool>;
    { L::op(in[I]...) } -> Op;
  }
inline constexpr bool accepts_operands<L, std::index_sequence<I...>> = true;
}  // namespace detail

/// A layer with `Count` operands: `accepts(a, b, ...)` and `op(a, b, ...)` with a shape for each, and
/// `parameters(a, b, ...)` if it has some. Its kernel reads operand i at `io.x[i]`. A layer may have
/// overloads for several numbers of operands.
/// \code
///   struct Bilinear {  // a' W b + bias
///     static constexpr std::string_view name = "bilinear";
///     static constexpr bool accepts(Shape a, Shape b) { return a.rank == 1 && b.rank == 1; }
///     static constexpr std::array<Parameter, 2> parameters(Shape a, Shape b);
///     static constexpr BilinearOp op(Shape a, Shape b) { return {a[0], b[0]}; }
///   };
///   Let<"score", From<"user", "item">, Bilinear>
/// \endcode
template <class L, std::size_t Count>
concept LayerOf = HasName<L> && detail::accepts_operands<L, std::make_index_sequence<Count>>;

namespace detail {
/// Number of the results of a layer that names several; 0 for others.
template <class L, class Operands>
inline constexpr std::size_t results_with = 0;
template <class L, std::size_t... I>
  requires requires(std::array<Shape, sizeof...(I)> in) { L::results(in[I]...); }
inline constexpr std::size_t results_with<L, std::index_sequence<I...>> =
    std::tuple_size_v<decltype(L::results((static_cast<void>(I), Shape{})...))>;
template <class L, std::size_t Count>
inline constexpr std::size_t results_of = results_with<L, std::make_index_sequence<Count>>;
}  // namespace detail

/// A rule that merges two branches of a model, or more: a layer with two operands. Add and Concatenate
/// are such rules.
/// \code
///   struct Product {
///     static constexpr std::string_view name = "product";
///     static constexpr bool accepts(Shape a, Shape b) { return a == b; }
///     static constexpr ProductOp op(Shape a, Shape) { return {a}; }
///   };
/// \endcode
template <class J>
concept JoinRule = LayerOf<J, 2>;

/// A block of layers: Sequential, Residual, Parallel, Repeat, Recompute.
template <class L>
concept Composite = requires { typename L::is_composite; };

/// A block with a name, which begins the names of its layers, as that of a Keras model within a
/// model: "decoder/dense". Its layers are numbered from 0; the second block of this name is
/// "decoder_1". The name is a constant of one or more printable ASCII characters except '/'.
/// \code
///   struct Decoder : ls::Sequential<ls::Dense<64, ls::relu>, ls::Dense<784>> {
///     static constexpr std::string_view name = "decoder";
///   };
/// \endcode
template <class L>
concept NamedBlock = Composite<L> && requires { L::name; };

namespace detail {

constexpr bool is_block_name(std::string_view name) {
  for (const char c : name)
    if (c < ' ' || c > '~' || c == '/') return false;
  return !name.empty();
}
/// False also for a name that is not a constant text.
template <class L>
constexpr bool block_name_ok() {
  if constexpr (NamedBlock<L>) {
    if constexpr (requires { typename std::bool_constant<is_block_name(L::name)>; })
      return is_block_name(L::name);
    else
      return false;
  } else {
    return true;
  }
}

template <class L>
struct CheckLayer {
  static_assert(HasName<L>,
                "lockstep::Layer: no name; add 'static constexpr std::string_view name'");
  static_assert(HasAccepts<L>,
                "lockstep::Layer: no accepts; add 'static constexpr bool accepts(Shape)'");
  static_assert(HasParameters<L>,
                "lockstep::Layer: no parameters; add 'static constexpr std::array<Parameter, N> "
                "parameters(Shape)'");
  static_assert(HasOp<L>,
                "lockstep::Layer: no op; add 'static constexpr MyOp op(Shape)', MyOp an aggregate "
                "with 'Shape out() "
                "const' and 'operator=='");
};
template <Composite L>
struct CheckLayer<L> {
  static_assert(block_name_ok<L>(),
                "lockstep::Sequential: the name of a block must be a constant, 'static constexpr "
                "std::string_view name', of printable ASCII characters except '/'");
};

/// Does not instantiate CheckLayer: clang would repeat its error. False for a block that is a model
/// with an error, which it has reported.
template <class L>
constexpr bool layer_ok() {
  if constexpr (Composite<L> && requires { L::input_shape; })
    return L::valid && block_name_ok<L>();
  else if constexpr (Composite<L>)
    return L::layers_ok && block_name_ok<L>();
  else
    return Layer<L>;
}

}  // namespace detail

/// Base of layers without parameters whose op is constructed from the input shape alone.
template <class TheOp>
struct ParameterlessLayer {
  static constexpr bool accepts(Shape) { return true; }
  static constexpr std::array<Parameter, 0> parameters(Shape) { return {}; }
  static constexpr TheOp op(Shape in) { return {in}; }
};

}  // namespace lockstep
