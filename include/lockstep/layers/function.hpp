/// \file
/// A function as a layer, with a derivative that the library computes.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "lockstep/concepts/layer.hpp"
#include "lockstep/functions/code.hpp"
#include "lockstep/functions/evaluate.hpp"
#include "lockstep/functions/formula.hpp"

namespace lockstep {

/// y = f(x), element by element or along the last axis. `C`: functions::Code. Without sums and
/// maxima over the last axis it is Pointwise; then dx = dy f'(x), computed from y if f' is a
/// function of y. Otherwise dx[j] is the sum over k of dy[k] d f(x)[k] / d x[j].
template <class C>
struct FunctionOp {
  static constexpr std::string_view members = "in formula nodes";
  static constexpr bool reduces = functions::has_reduction(functions::tape_of<C>);
  static constexpr bool from_y = [] {
    if constexpr (reduces)
      return false;
    else
      return functions::derivative<C>.from_y;
  }();
  /// Whether y has one value per row.
  static constexpr bool is_row =
      reduces && functions::tape_of<C>.node[functions::tape_of<C>.size - 1].is_row;

  Shape in;
  functions::Formula<C> formula{};
  functions::NodeNumbers<C> nodes{};

  constexpr Shape out() const {
    Shape result = in;
    if (is_row) result.extent[static_cast<std::size_t>(in.rank - 1)] = 1;
    return result;
  }
  constexpr double flops() const {
    std::size_t operations = 0;
    for (std::size_t i = 0; i < functions::tape_of<C>.size; ++i)
      operations += functions::is_leaf(functions::tape_of<C>.node[i].op) ? 0 : 1;
    return static_cast<double>(operations * in.size());
  }

  template <class T>
    requires(!reduces)
  T value(T x) const {
    return evaluate<functions::Forward<C>>(x);
  }
  /// At y if `from_y`, else at x.
  template <class T>
    requires(!reduces)
  T derivative(T x_or_y) const {
    return evaluate<functions::Slope<C>>(x_or_y);
  }
  bool operator==(const FunctionOp&) const = default;

 private:
  template <class P, class T>
  static T evaluate(T x) {
    functions::Nodes<P, functions::ScalarMath<T>> nodes;
    nodes.template set<functions::Operation::input>(x);
    nodes.template set<functions::Operation::output>(x);
    nodes.compute_all();
    T result;
    nodes.template get<static_cast<std::size_t>(P::root)>(result);
    return result;
  }
};

/// A function as a layer: `ls::Function`. Shape unchanged, or the last axis becomes 1 if the
/// function has one value per row.
template <class C>
struct FunctionLayer : ParameterlessLayer<FunctionOp<C>> {
  static constexpr char name[] = "function";
  static constexpr bool accepts(Shape in) { return !FunctionOp<C>::reduces || in.rank >= 1; }
};

}  // namespace lockstep
