/// \file
/// Functions as types: a list of words that names a function's nodes, and the passes over a row
/// that compute them. Invariant: functions with the same nodes have the same words, in any unit and
/// with any compiler, so that their kernels are compiled once.
///
///     softmax:   pass 0   m = max(x)
///                pass 1   s = sum(exp(x - m))
///                pass 2   y = exp(x - m) / s
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "lockstep/functions/derivative.hpp"
#include "lockstep/functions/expression.hpp"
#include "lockstep/functions/tape.hpp"

namespace lockstep::functions {

/// A list of words as a type.
template <std::uint64_t... Words>
struct Code {};

struct WordList {
  std::array<std::uint64_t, 2 * Tape::capacity> word{};
  std::size_t size = 0;
};

/// One word per node, and one for its value if it has one.
constexpr WordList encode(const Tape& tape) {
  WordList list;
  for (std::size_t i = 0; i < tape.size; ++i) {
    const Node& n = tape.node[i];
    std::uint64_t word = static_cast<std::uint64_t>(n.op) | (n.is_row ? 256u : 0u);
    for (std::size_t k = 0; k < operands(n.op); ++k)
      word |= std::uint64_t{n.from[k]} << (16 + 12 * k);
    list.word[list.size++] = word;
    if (has_value(n.op)) list.word[list.size++] = std::bit_cast<std::uint64_t>(n.value);
  }
  return list;
}

template <std::uint64_t... Words>
constexpr Tape decode(Code<Words...>) {
  constexpr std::array<std::uint64_t, sizeof...(Words)> words{Words...};
  Tape tape;
  for (std::size_t i = 0; i < words.size(); ++i) {
    Node n{static_cast<Operation>(words[i] & 255), (words[i] & 256) != 0, {}, 0};
    for (std::size_t k = 0; k < operands(n.op); ++k)
      n.from[k] = static_cast<std::uint16_t>(words[i] >> (16 + 12 * k) & 0xFFF);
    if (has_value(n.op)) n.value = std::bit_cast<double>(words[++i]);
    tape.node[tape.size++] = n;
  }
  return tape;
}

/// Calls f and records what it does. The last node is the result.
template <class F>
constexpr Tape record_function(const F& f) {
  Tape tape;
  const Expression x(tape, tape.leaf(Operation::input, false));
  int root = 0;
  if constexpr (std::invocable<const F&, Expression>)
    root = Expression(f(x)).on(tape);
  else
    root = Expression(f(x, Expression(tape, tape.leaf(Operation::target, false)))).on(tape);
  // The loss of a row is the mean over its elements.
  if (!std::invocable<const F&, Expression> && has_reduction(tape) && !tape[root].is_row)
    root = tape.divide(tape.reduce(Operation::sum, root), tape.length());
  std::array roots{root};
  return needed_by(tape, roots);
}

/// The passes over the elements of a row.
struct Schedule {
  static constexpr std::size_t most = 12;
  std::array<std::uint8_t, Tape::capacity> stage{};  ///< the first pass that can compute a node
  std::array<std::array<bool, Tape::capacity>, most> needed{};  ///< elements, by pass
  std::size_t passes = 0;
  bool fits = true;
};

/// `root`: the node whose elements the last pass stores.
constexpr Schedule schedule_of(const Tape& tape, int root) {
  Schedule s;
  std::size_t last = 0;
  for (std::size_t i = 0; i < tape.size; ++i) {
    const Node& n = tape.node[i];
    for (std::size_t k = 0; k < operands(n.op); ++k) {
      const std::size_t from = s.stage[n.from[k]] + (is_reduction(n.op) ? 1u : 0u);
      if (from > s.stage[i]) s.stage[i] = static_cast<std::uint8_t>(from);
    }
    if (s.stage[i] > last) last = s.stage[i];
  }
  s.passes = last + 1;
  s.fits = s.passes <= Schedule::most;
  if (!s.fits) return s;
  for (std::size_t pass = 0; pass < s.passes; ++pass) {
    auto& needed = s.needed[pass];
    for (std::size_t i = tape.size; i-- > 0;) {
      const Node& n = tape.node[i];
      if (is_reduction(n.op) && s.stage[n.from[0]] == pass) needed[n.from[0]] = true;
      if (pass == last && static_cast<int>(i) == root && !n.is_row) needed[i] = true;
    }
    for (std::size_t i = tape.size; i-- > 0;)
      for (std::size_t k = 0; needed[i] && k < operands(tape.node[i].op); ++k)
        if (!tape.node[tape.node[i].from[k]].is_row) needed[tape.node[i].from[k]] = true;
  }
  return s;
}

/// Whether a function can be differentiated and computed.
constexpr Fault fault_of(const Tape& tape, bool is_loss) {
  if (tape.fault != Fault::none) return tape.fault;
  const Derived d = is_loss               ? value_and_slope(tape)
                    : has_reduction(tape) ? gradient_of(tape)
                                          : derivative_of(tape);
  const bool fits =
      schedule_of(d.tape, d.slope).fits && schedule_of(tape, static_cast<int>(tape.size) - 1).fits;
  return fits ? d.tape.fault : Fault::length;
}

template <class C>
inline constexpr Tape tape_of = decode(C{});
template <class C>
inline constexpr Derived derivative = derivative_of(tape_of<C>);
template <class C>
inline constexpr Derived loss_of = value_and_slope(tape_of<C>);
template <class C>
inline constexpr Derived gradient = gradient_of(tape_of<C>);

// The programs that kernels evaluate: nodes, and the roots among them.
template <class C>
struct Forward {
  static constexpr const Tape& tape = tape_of<C>;
  static constexpr int value = static_cast<int>(tape.size) - 1, root = value;
  static constexpr Schedule schedule = schedule_of(tape, root);
};
template <class C>
struct Slope {
  static constexpr const Tape& tape = derivative<C>.tape;
  static constexpr int root = derivative<C>.slope;
};
template <class C>
struct ValueAndSlope {
  static constexpr const Tape& tape = loss_of<C>.tape;
  static constexpr int value = loss_of<C>.value, root = loss_of<C>.slope;
  static constexpr Schedule schedule = schedule_of(tape, root);
};
template <class C>
struct Backward {
  static constexpr const Tape& tape = gradient<C>.tape;
  static constexpr int root = gradient<C>.slope;
  static constexpr Schedule schedule = schedule_of(tape, root);
};

namespace detail {

template <auto f>
inline constexpr bool can_be_recorded =
    requires { typename std::integral_constant<std::size_t, record_function(f).size>; };
template <auto f, std::size_t... I>
auto code_of(std::index_sequence<I...>) {
  constexpr WordList list = encode(record_function(f));
  return Code<list.word[I]...>{};
}

}  // namespace detail
}  // namespace lockstep::functions
