/// \file
/// A function as a loss, with a derivative that the library computes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "lockstep/core/rng.hpp"
#include "lockstep/functions/code.hpp"
#include "lockstep/functions/evaluate.hpp"
#include "lockstep/functions/formula.hpp"
#include "lockstep/losses/elementwise_loss.hpp"

namespace lockstep {

/// f(p, t) and its derivative by p, for one element.
template <class C>
struct FunctionRule {
  functions::Formula<C> formula{};

  template <class T>
  LossTerm<T> operator()(T p, T t) const {
    using P = functions::ValueAndSlope<C>;
    functions::Nodes<P, functions::ScalarMath<T>> nodes;
    nodes.template set<functions::Operation::input>(p);
    nodes.template set<functions::Operation::target>(t);
    nodes.compute_all();
    LossTerm<T> term;
    nodes.template get<static_cast<std::size_t>(P::value)>(term.value);
    nodes.template get<static_cast<std::size_t>(P::root)>(term.slope);
    return term;
  }
  bool operator==(const FunctionRule&) const = default;
};

/// A loss with a value for each row, from sums or maxima over the last axis.
template <class C>
struct FunctionLossOp {
  using target_type = float;
  std::size_t elements = 1, positions = 1;
  functions::Formula<C> formula{};

  static constexpr bool by_rows = true;
  constexpr std::size_t rows() const { return positions; }
  constexpr FunctionLossOp row() const { return {elements, 1}; }
  constexpr std::size_t size() const { return elements * positions; }
  constexpr std::size_t target_size() const { return size(); }

  template <class T>
  double example(const T* p, const T* t, T* g, double scale) const {
    if (positions > 1) return detail::mean_over_rows(*this, p, t, g, scale);
    if (g == nullptr) return run<functions::Forward<C>, T>(p, t, [](const auto&, std::size_t) {});
    return run<functions::ValueAndSlope<C>, T>(p, t, [=](const auto& nodes, std::size_t k) {
      T slope;
      nodes.template get<static_cast<std::size_t>(functions::ValueAndSlope<C>::root)>(slope);
      g[k] = static_cast<T>(scale) * slope;
    });
  }
  bool operator==(const FunctionLossOp&) const = default;

 private:
  template <class P, class T, class Store>
  double run(const T* p, const T* t, const Store& store) const {
    using Math = functions::ScalarMath<T>;
    functions::Nodes<P, Math> nodes;
    functions::RowPasses<P, Math>::run(
        nodes, elements,
        [=](auto& values, std::size_t k, std::size_t) {
          values.template set<functions::Operation::input>(p[k]);
          values.template set<functions::Operation::target>(t[k]);
        },
        [&](const auto& values, std::size_t k, std::size_t) { store(values, k); });
    return nodes.template row_value<static_cast<std::size_t>(P::value)>();
  }
};

/// A function as a loss: `ls::Function`. The mean over the elements of an example, or with sums
/// over the last axis the mean over its rows.
template <class C>
struct FunctionLoss {
  using target_type = float;
  static constexpr std::string_view name = "function";
  static constexpr bool reduces = functions::has_reduction(functions::tape_of<C>);

  static constexpr bool accepts(Shape out) { return !reduces || out.rank >= 1; }
  static constexpr Shape target_shape(Shape out) { return out; }
  static constexpr Shape positions(Shape out) { return positions_of(out); }
  static constexpr auto op(Shape out) {
    if constexpr (reduces)
      return FunctionLossOp<C>{static_cast<std::size_t>(out.channels()), positions(out).size()};
    else
      return ElementwiseLossOp<FunctionRule<C>>{out.size(), {}, positions(out).size()};
  }
  /// The function as a number, which the processes of a job compare.
  std::array<std::pair<std::string_view, double>, 1> numbers() const {
    const std::string_view text = functions::Formula<C>{};
    return {{{"function", static_cast<double>(hash_name(text) >> 11)}}};
  }
};

}  // namespace lockstep
