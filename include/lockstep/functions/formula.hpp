/// \file
/// A function as text and as numbers, for the architecture of a model and its exports. Invariant:
/// equal functions have equal texts.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/core/format_numbers.hpp"
#include "lockstep/functions/code.hpp"
#include "lockstep/functions/tape.hpp"

namespace lockstep::functions {

/// Name of an operation in a formula: "exp"; of an operator the operator.
constexpr std::string_view name_of(Operation op) {
  constexpr std::array<std::string_view, 33> names{
      "x",   "target", "y",    "dy",    "",     "length",  "-",
      "exp", "expm1",  "log",  "log1p", "tanh", "sigmoid", "softplus",
      "erf", "erfc",   "bell", "sqrt",  "abs",  "sign",    "stop_gradient",
      "+",   "-",      "*",    "/",     "pow",  "<",       "<=",
      "==",  "max",    "min",  "sum",   "max"};
  return names[static_cast<std::size_t>(op)];
}

/// The formula of a function; values that it uses more than once have names:
/// "a = exp(x); a / (1 + a)".
class FormulaText {
 public:
  [[gnu::cold]] explicit FormulaText(const Tape& tape) : tape_(tape) {
    std::array<int, Tape::capacity> uses{};
    for (std::size_t i = 0; i < tape.size; ++i)
      for (std::size_t k = 0; k < operands(tape.node[i].op); ++k)
        if (!(k < 2 && is_extremum(tape.node[i]))) ++uses[tape.node[i].from[k]];
    std::string text;
    for (std::size_t i = 0; i < tape.size; ++i) {
      const Node& n = tape.node[i];
      const bool is_named = i + 1 < tape.size && uses[i] > 1 && !is_leaf(n.op);
      texts_[i] = {.text = to_text(n), .is_atom = !is_infix(n)};
      if (!is_named) continue;
      const std::string name = next_name();
      text += name + " = " + texts_[i].text + "; ";
      texts_[i] = {name, true};
    }
    text_ = text + texts_[tape.size - 1].text;
  }
  const std::string& text() const { return text_; }

 private:
  struct Part {
    std::string text{};
    bool is_atom = true;
  };
  /// max(a, b) or min(a, b).
  static bool is_extremum(const Node& n) {
    return (n.op == Operation::if_maximum || n.op == Operation::if_minimum) &&
           n.from[0] == n.from[2] && n.from[1] == n.from[3];
  }
  static bool is_infix(const Node& n) {
    return is_binary(n.op) || n.op == Operation::negate ||
           (n.op == Operation::constant && n.value < 0);
  }
  [[gnu::cold]] std::string next_name() {
    std::string name(1, static_cast<char>('a' + names_ % 20));  // not x
    if (names_ >= 20) name += std::to_string(names_ / 20);
    ++names_;
    return name;
  }
  [[gnu::cold]] std::string atom(std::size_t i) const {
    return texts_[i].is_atom ? texts_[i].text : "(" + texts_[i].text + ")";
  }
  [[gnu::cold]] std::string plain(std::size_t i) const { return texts_[i].text; }
  [[gnu::cold]] std::string to_text(const Node& n) const {
    const std::string name(name_of(n.op));
    if (n.op == Operation::constant) return lockstep::detail::shortest_number(n.value);
    if (is_leaf(n.op)) return name;
    if (n.op == Operation::negate) return "-" + atom(n.from[0]);
    if (is_binary(n.op)) return atom(n.from[0]) + " " + name + " " + atom(n.from[1]);
    if (has_factor(n.op) && n.value != 1)
      return name + "(" + lockstep::detail::shortest_number(n.value) + " * " + atom(n.from[0]) +
             ")";
    if (n.op == Operation::power)
      return "pow(" + plain(n.from[0]) + ", " + lockstep::detail::shortest_number(n.value) + ")";
    if (is_extremum(n)) return name + "(" + plain(n.from[0]) + ", " + plain(n.from[1]) + ")";
    if (is_choice(n.op)) {
      const bool is_first = n.op == Operation::if_maximum || n.op == Operation::if_minimum;
      const std::string condition = is_first
                                        ? atom(n.from[0]) + " is " + name + " of " + atom(n.from[1])
                                        : atom(n.from[0]) + " " + name + " " + atom(n.from[1]);
      return "select(" + condition + ", " + plain(n.from[2]) + ", " + plain(n.from[3]) + ")";
    }
    return name + "(" + plain(n.from[0]) + ")";
  }

  const Tape& tape_;
  std::array<Part, Tape::capacity> texts_{};
  std::string text_;
  std::size_t names_ = 0;
};

/// The formula as a member of an op. A member, so that it is in everything that describes ops.
template <class C>
struct Formula {
  char unused = 0;  ///< a class without members would not count as a member of an aggregate

  operator std::string_view() const {
    static const std::string text = FormulaText(tape_of<C>).text();
    return text;
  }
  bool operator==(const Formula&) const = default;
};

/// The nodes as numbers, for tools: for each node its Operation, its operands' numbers, and its
/// value if it has one.
template <class C>
struct NodeNumbers {
  char unused = 0;

  struct List {
    std::array<double, 6 * tape_of<C>.size> number{};
    std::size_t size = 0;
  };
  static constexpr List list = [] {
    List all;
    for (std::size_t i = 0; i < tape_of<C>.size; ++i) {
      const Node& n = tape_of<C>.node[i];
      all.number[all.size++] = static_cast<double>(n.op);
      for (std::size_t k = 0; k < operands(n.op); ++k) all.number[all.size++] = n.from[k];
      if (has_value(n.op)) all.number[all.size++] = n.value;
    }
    return all;
  }();
  constexpr const double* begin() const { return list.number.data(); }
  constexpr const double* end() const { return begin() + list.size; }
  bool operator==(const NodeNumbers&) const = default;
};

}  // namespace lockstep::functions
