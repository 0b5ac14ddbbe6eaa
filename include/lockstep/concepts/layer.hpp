/// \file
/// The interface of layers. Invariants: a layer is an empty type that does not depend on a device;
/// its op is a plain value with all that a kernel needs.
#pragma once

#include <array>
#include <concepts>
#include <string_view>
#include <type_traits>

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
/// Optional members: `using activation = L`, a layer without parameters that is applied to the
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

/// A rule that merges two branches of a model: `name`; `accepts(a, b)`, whether values of these
/// shapes can be merged; `op(a, b)`, whose kernel reads x and x2, and sets `keeps_x` and `keeps_x2`
/// if backward reads them too, as a product does. Add and Concatenate are such rules.
///
/// Optional members: `most_branches`, if the rule merges fewer branches than any number; `using
/// partial`, the rule of all nodes but the last one, if more than two branches are merged; `op(a,
/// b, branches)`, which is called for the last node with the number of branches. Average has the
/// last two.
/// \code
///   struct Product {
///     static constexpr std::string_view name = "product";
///     static constexpr bool accepts(Shape a, Shape b) { return a == b; }
///     static constexpr ProductOp op(Shape a, Shape) { return {a}; }
///   };
/// \endcode
template <class J>
concept JoinRule = HasName<J> && requires(Shape a, Shape b) {
  { J::accepts(a, b) } -> std::same_as<bool>;
  { J::op(a, b) } -> Op;
};

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
