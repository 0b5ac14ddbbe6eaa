/// \file
/// Evaluates the nodes of a function, for one element or for a vector of them, and over the rows of
/// a tensor. Invariant: values of a row are computed in double, elements in the type of `Math`.
///
/// `Math` has the type `V` of values, its scalar `T`, the number of `lanes`, and a function for
/// each operation that is no operator. All functions are inlined, since vectors may not be
/// arguments of a function that is compiled for another processor.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "lockstep/functions/tape.hpp"

#define LOCKSTEP_INLINE [[gnu::always_inline, gnu::no_instrument_function]] static inline

namespace lockstep::functions {

/// One element of type T.
template <class Real>
struct ScalarMath {
  using V = Real;
  using T = Real;
  static constexpr std::size_t lanes = 1;

  LOCKSTEP_INLINE void exp(T& y, const T& a) { y = std::exp(a); }
  LOCKSTEP_INLINE void expm1(T& y, const T& a) { y = std::expm1(a); }
  LOCKSTEP_INLINE void log(T& y, const T& a) { y = std::log(a); }
  LOCKSTEP_INLINE void log1p(T& y, const T& a) { y = std::log1p(a); }
  LOCKSTEP_INLINE void tanh(T& y, const T& a) { y = std::tanh(a); }
  LOCKSTEP_INLINE void sigmoid(T& y, const T& a) {
    const T e = std::exp(a > 0 ? -a : a);
    y = (a > 0 ? T(1) : e) / (1 + e);
  }
  LOCKSTEP_INLINE void softplus(T& y, const T& a) {
    y = (a > 0 ? a : T(0)) + std::log1p(std::exp(a > 0 ? -a : a));
  }
  LOCKSTEP_INLINE void erf(T& y, const T& a, double k) { y = std::erf(static_cast<T>(k) * a); }
  LOCKSTEP_INLINE void erfc(T& y, const T& a, double k) { y = std::erfc(static_cast<T>(k) * a); }
  LOCKSTEP_INLINE void bell(T& y, const T& a, double k) {
    const T z = static_cast<T>(k) * a;
    y = std::exp(-z * z);
  }
  LOCKSTEP_INLINE void sqrt(T& y, const T& a) { y = std::sqrt(a); }
  LOCKSTEP_INLINE void power(T& y, const T& a, double e) { y = std::pow(a, static_cast<T>(e)); }

  LOCKSTEP_INLINE void load(T& v, const auto* p, std::size_t) { v = static_cast<T>(*p); }
  template <class A>
  LOCKSTEP_INLINE void store(A* p, const T& v, std::size_t) {
    *p = A(v);
  }
  LOCKSTEP_INLINE void add(double* sums, const T& v, std::size_t) {
    *sums += static_cast<double>(v);
  }
};

/// y = op(a, b, u, v).
template <class Math, Operation op>
LOCKSTEP_INLINE void apply(typename Math::V& y, const typename Math::V& a,
                           const typename Math::V& b, const typename Math::V& u,
                           const typename Math::V& v, [[maybe_unused]] double value) {
  using V = typename Math::V;
  if constexpr (op == Operation::negate)
    y = -a;
  else if constexpr (op == Operation::exp)
    Math::exp(y, a);
  else if constexpr (op == Operation::expm1)
    Math::expm1(y, a);
  else if constexpr (op == Operation::log)
    Math::log(y, a);
  else if constexpr (op == Operation::log1p)
    Math::log1p(y, a);
  else if constexpr (op == Operation::tanh)
    Math::tanh(y, a);
  else if constexpr (op == Operation::sigmoid)
    Math::sigmoid(y, a);
  else if constexpr (op == Operation::softplus)
    Math::softplus(y, a);
  else if constexpr (op == Operation::erf)
    Math::erf(y, a, value);
  else if constexpr (op == Operation::erfc)
    Math::erfc(y, a, value);
  else if constexpr (op == Operation::bell)
    Math::bell(y, a, value);
  else if constexpr (op == Operation::sqrt)
    Math::sqrt(y, a);
  else if constexpr (op == Operation::abs)
    y = a < 0 ? -a : a;
  else if constexpr (op == Operation::sign)
    y = a > 0 ? V{} + typename Math::T(1) : a < 0 ? V{} - typename Math::T(1) : a;
  else if constexpr (op == Operation::stop)
    y = a;
  else if constexpr (op == Operation::add)
    y = a + b;
  else if constexpr (op == Operation::subtract)
    y = a - b;
  else if constexpr (op == Operation::multiply)
    y = a * b;
  else if constexpr (op == Operation::divide)
    y = a / b;
  else if constexpr (op == Operation::power)
    Math::power(y, a, value);
  else if constexpr (op == Operation::if_less)
    y = a < b ? u : v;
  else if constexpr (op == Operation::if_less_equal)
    y = a <= b ? u : v;
  else if constexpr (op == Operation::if_equal)
    y = a == b ? u : v;
  else if constexpr (op == Operation::if_maximum)
    y = ((a >= b) | (a != a)) ? u : v;
  else if constexpr (op == Operation::if_minimum)
    y = ((a <= b) | (a != a)) ? u : v;
}

/// Numbers of nodes.
struct NodeList {
  std::array<std::uint16_t, Tape::capacity> node{};
  std::size_t size = 0;
};
template <class Which>
constexpr NodeList nodes_that(const Tape& tape, const Which& which) {
  NodeList list;
  for (std::size_t i = 0; i < tape.size; ++i)
    if (which(i)) list.node[list.size++] = static_cast<std::uint16_t>(i);
  return list;
}

/// The nodes of a program P (code.hpp), as values of Math.
template <class P, class Math>
struct Nodes {
  using V = typename Math::V;
  using T = typename Math::T;
  static constexpr std::size_t size = P::tape.size;

  V element[size > 0 ? size : 1];
  double row[size > 0 ? size : 1];

  /// An element, a constant or a value of the row.
  template <std::size_t I>
  [[gnu::always_inline, gnu::no_instrument_function]] void get(V& to) const {
    constexpr Node n = P::tape.node[I];
    if constexpr (n.op == Operation::constant)
      to = V{} + static_cast<T>(n.value);
    else if constexpr (n.is_row)
      to = V{} + static_cast<T>(row[I]);
    else
      to = element[I];
  }
  template <std::size_t I>
  [[gnu::always_inline, gnu::no_instrument_function]] void compute_element() {
    constexpr Node n = P::tape.node[I];
    V a, b, u, v;
    if constexpr (operands(n.op) > 0)
      get<n.from[0]>(a);
    else
      a = V{};
    if constexpr (operands(n.op) > 1)
      get<n.from[1]>(b);
    else
      b = V{};
    if constexpr (operands(n.op) > 2)
      get<n.from[2]>(u), get<n.from[3]>(v);
    else
      u = v = V{};
    if constexpr (!is_leaf(n.op) && !is_reduction(n.op))
      apply<Math, n.op>(element[I], a, b, u, v, n.value);
  }
  template <std::size_t I>
  [[gnu::always_inline, gnu::no_instrument_function]] double row_value() const {
    constexpr Node n = P::tape.node[I];
    if constexpr (n.op == Operation::constant)
      return n.value;
    else
      return row[I];
  }
  template <std::size_t I>
  [[gnu::always_inline, gnu::no_instrument_function]] void compute_row() {
    constexpr Node n = P::tape.node[I];
    double a = 0, b = 0, u = 0, v = 0;
    if constexpr (operands(n.op) > 0) a = row_value<n.from[0]>();
    if constexpr (operands(n.op) > 1) b = row_value<n.from[1]>();
    if constexpr (operands(n.op) > 2) u = row_value<n.from[2]>(), v = row_value<n.from[3]>();
    apply<ScalarMath<double>, n.op>(row[I], a, b, u, v, n.value);
  }

  /// Sets the leaf of this kind, if there is one.
  template <Operation op>
  [[gnu::always_inline, gnu::no_instrument_function]] void set(const V& v) {
    constexpr int leaf = leaf_of(op);
    if constexpr (leaf >= 0) element[leaf] = v;
  }
  template <Operation op>
  [[gnu::always_inline, gnu::no_instrument_function]] void set_row(double v) {
    constexpr int leaf = leaf_of(op);
    if constexpr (leaf >= 0) row[leaf] = v;
  }

  /// The nodes of a list, in its order.
  template <const NodeList& list, std::size_t... K>
  [[gnu::always_inline, gnu::no_instrument_function]] void compute_elements(
      std::index_sequence<K...>) {
    (compute_element<list.node[K]>(), ...);
  }
  template <const NodeList& list, std::size_t... K>
  [[gnu::always_inline, gnu::no_instrument_function]] void compute_rows(std::index_sequence<K...>) {
    (compute_row<list.node[K]>(), ...);
  }
  /// All nodes of a function without reductions. Values per row depend on constants alone.
  [[gnu::always_inline, gnu::no_instrument_function]] void compute_all() {
    compute_rows<rows>(std::make_index_sequence<rows.size>{});
    compute_elements<elements>(std::make_index_sequence<elements.size>{});
  }

 private:
  static constexpr int leaf_of(Operation op) {
    for (std::size_t i = 0; i < size; ++i)
      if (P::tape.node[i].op == op) return static_cast<int>(i);
    return -1;
  }
  static constexpr NodeList rows = nodes_that(P::tape, [](std::size_t i) {
    return P::tape.node[i].is_row && !is_leaf(P::tape.node[i].op);
  });
  static constexpr NodeList elements = nodes_that(P::tape, [](std::size_t i) {
    return !P::tape.node[i].is_row && !is_leaf(P::tape.node[i].op);
  });
};

/// The passes of a program over the elements of a row.
template <class P, class Math>
struct RowPasses {
  using V = typename Math::V;
  using Values = Nodes<P, Math>;
  static constexpr std::size_t size = P::tape.size, passes = P::schedule.passes;

  /// The passes over a row of n elements. `load(values, k, count)` sets the elements that begin at
  /// k; `store(values, k, count)` is called in the last pass if `stores`.
  template <class Load, class Store>
  LOCKSTEP_INLINE void run(Values& values, std::size_t n, const Load& load, const Store& store,
                           bool stores = true) {
    values.template set_row<Operation::length>(static_cast<double>(n));
    each_pass(values, n, load, store, stores, std::make_index_sequence<passes>{});
  }

 private:
  template <class Load, class Store, std::size_t... S>
  LOCKSTEP_INLINE void each_pass(Values& values, std::size_t n, const Load& load,
                                 const Store& store, bool stores, std::index_sequence<S...>) {
    (pass<S>(values, n, load, store, stores), ...);
  }

  /// The reductions of elements that pass S computes.
  template <std::size_t S>
  static constexpr NodeList reductions = nodes_that(P::tape, [](std::size_t i) {
    const Node& n = P::tape.node[i];
    return is_reduction(n.op) && P::schedule.stage[n.from[0]] == S;
  });
  /// The values per row that are computed before pass S.
  template <std::size_t S>
  static constexpr NodeList rows = nodes_that(P::tape, [](std::size_t i) {
    const Node& n = P::tape.node[i];
    return n.is_row && !is_reduction(n.op) && !is_leaf(n.op) && P::schedule.stage[i] == S;
  });
  /// The elements that pass S computes.
  template <std::size_t S>
  static constexpr NodeList elements = nodes_that(P::tape, [](std::size_t i) {
    return P::schedule.needed[S][i] && !is_leaf(P::tape.node[i].op);
  });

  /// A reduction of elements.
  template <std::size_t I>
  struct Reduction {
    static constexpr bool is_sum = P::tape.node[I].op == Operation::sum;
    static constexpr std::size_t from = P::tape.node[I].from[0];
    double sums[is_sum ? Math::lanes : 1];
    V most;

    [[gnu::always_inline, gnu::no_instrument_function]] Reduction() {
      for (double& sum : sums) sum = 0;
      most = V{} - std::numeric_limits<typename Math::T>::infinity();
    }
    [[gnu::always_inline, gnu::no_instrument_function]] void add(const Values& values,
                                                                 std::size_t count) {
      if constexpr (is_sum)
        Math::add(sums, values.element[from], count);
      else
        keep_largest(most, values.element[from], count);
    }
    [[gnu::always_inline, gnu::no_instrument_function]] void write(Values& values) const {
      if constexpr (is_sum) {
        values.row[I] = 0;
        for (const double sum : sums) values.row[I] += sum;
      } else {
        values.row[I] = static_cast<double>(largest_lane(most));
      }
    }
  };
  template <std::size_t S, class>
  struct Reductions;
  template <std::size_t S, std::size_t... K>
  struct Reductions<S, std::index_sequence<K...>> : Reduction<reductions<S>.node[K]>... {
    [[gnu::always_inline, gnu::no_instrument_function]] void add(
        [[maybe_unused]] const Values& values, [[maybe_unused]] std::size_t count) {
      (Reduction<reductions<S>.node[K]>::add(values, count), ...);
    }
    [[gnu::always_inline, gnu::no_instrument_function]] void write(
        [[maybe_unused]] Values& values) const {
      (Reduction<reductions<S>.node[K]>::write(values), ...);
    }
  };

  template <std::size_t S, class Load, class Store>
  LOCKSTEP_INLINE void pass(Values& values, std::size_t n, const Load& load, const Store& store,
                            bool stores) {
    values.template compute_rows<rows<S>>(std::make_index_sequence<rows<S>.size>{});
    constexpr bool is_last = S + 1 == passes;
    if (reductions<S>.size == 0 && !(is_last && stores)) return;
    Reductions<S, std::make_index_sequence<reductions<S>.size>> results;
    const auto step = [&](std::size_t k, std::size_t count) __attribute__((
                          always_inline, no_instrument_function)) {
      load(values, k, count);
      values.template compute_elements<elements<S>>(std::make_index_sequence<elements<S>.size>{});
      results.add(values, count);
      if constexpr (is_last)
        if (stores) store(values, k, count);
    };
    constexpr std::size_t lanes = Math::lanes;
    const std::size_t whole = n - n % lanes;  // whole vectors, then the rest
    for (std::size_t k = 0; k < whole; k += lanes) step(k, lanes);
    if (whole < n) step(whole, n - whole);
    results.write(values);
  }

  LOCKSTEP_INLINE void keep_largest(V& most, const V& v, std::size_t count) {
    const V larger = ((v > most) | (v != v)) ? v : most;
    if (Math::lanes == 1 || count == Math::lanes) {
      most = larger;
    } else {
      V mixed = most;
      std::memcpy(&mixed, &larger, count * sizeof(typename Math::T));
      most = mixed;
    }
  }
  LOCKSTEP_INLINE typename Math::T largest_lane(const V& most) {
    if constexpr (Math::lanes == 1) {
      return most;
    } else {
      typename Math::T result = most[0];
      for (std::size_t l = 1; l < Math::lanes; ++l)
        if (most[l] > result || most[l] != most[l]) result = most[l];
      return result;
    }
  }
};

}  // namespace lockstep::functions

#undef LOCKSTEP_INLINE
