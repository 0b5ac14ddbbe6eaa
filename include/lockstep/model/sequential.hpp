/// \file
/// Stacks of layers. Invariant: a `Sequential` that begins with `Input` is a model, others are
/// blocks; both are empty types.
#pragma once

#include <initializer_list>

#include "lockstep/model/faults.hpp"
#include "lockstep/model/graph.hpp"

namespace lockstep {

namespace detail {
template <int... Extents>
struct CheckInput {
  static_assert(
      sizeof...(Extents) <= 4 && ((Extents > 0) && ...),
      "lockstep::Input: extents must be at least 1 and at most four; the batch is not an extent");
};
}  // namespace detail

/// Shape of one example, as first layer of a model: `Input<28, 28, 1>` is height, width, channels.
template <int... Extents>
struct Input {
  static constexpr Shape value = [] {
    if constexpr (sizeof...(Extents) <= 4) return shape(Extents...);
    return Shape{};
  }();

  static_assert(sizeof(detail::CheckInput<Extents...>) > 0);
};

/// A linear stack of layers, as in Keras.
/// \code
///   struct Cnn : ls::Sequential<ls::Input<28, 28, 1>, ls::Conv2D<32, 3>, ls::ReLU, ls::Flatten,
///   ls::Dense<10>> {}; static_assert(Cnn::parameter_count == 216'650);
/// \endcode
/// Derive a struct instead of using an alias, which keeps symbols and error messages short.
/// A struct with a `name` is a NamedBlock where it is part of another net; so may be a net that
/// begins with the Input of the shape that it receives there.
template <class... Layers>
struct Sequential {
  using is_composite = void;
  using children = List<Layers...>;
  using ops = detail::Union<typename detail::OpsOf<Layers>::type...>;
  static constexpr bool layers_ok = [] {
    bool all = true;
    for (const bool ok : std::initializer_list<bool>{true, detail::layer_ok<Layers>()...})
      all = all && ok;
    return all;
  }();
  template <class Walk>
  static constexpr detail::ValueId append(Walk& walk, detail::ValueId v) {
    for (const detail::ValueId out :
         std::initializer_list<detail::ValueId>{v, (v = walk.template add<Layers>(v))...})
      v = out;
    return v;
  }

  // In a list, since clang limits fold expressions to 256 operands.
  static_assert(
      std::initializer_list<std::size_t>{1, sizeof(detail::CheckLayer<Layers>)...}.size() > 0);
};

/// The identity, as a skip branch.
using Identity = Sequential<>;

/// A model, the network of `ls::Model`. Its members are constants.
template <int... Extents, class... Layers>
struct Sequential<Input<Extents...>, Layers...> : Sequential<Layers...> {
 private:
  using body = Sequential<Layers...>;
  using built = detail::Built<body, Input<Extents...>::value>;

 public:
  static constexpr auto& graph = built::graph;  ///< nodes, shapes, names, parameters
  static constexpr bool valid = built::valid;   ///< false if an error was reported
  static constexpr Shape input_shape = Input<Extents...>::value;
  static constexpr Shape output_shape = graph.value[graph.output];
  static constexpr std::size_t trainable_count = graph.weights;
  static constexpr std::size_t parameter_count = graph.weights + graph.state;

  static_assert(sizeof(detail::Verdict<built, body>) > 0);
};

/// The network argument of `ls::Model`.
template <class N>
concept Network = requires {
  N::graph;
  { N::valid } -> std::convertible_to<bool>;
};

}  // namespace lockstep
