/// \file
/// The operations of a function, in the order in which it computes them. Invariants: operands stand
/// before their operation; equal operations are one node; everything is a constant expression.
///
///     x / (2 + exp(-x)):   0 input   1 negate 0   2 exp 1
///                          3 constant 2   4 add 2 3   5 divide 0 4
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace lockstep::functions {

/// Operands are a, b, u, v. `if_...` has the value u if its condition on a and b is true, else v.
enum class Operation : std::uint8_t {
  input,     ///< x of a layer, the prediction of a loss
  target,    ///< of a loss
  output,    ///< y, where a derivative reads it instead of x
  slope,     ///< the gradient of y
  constant,  ///< value
  length,    ///< of the last axis
  negate,    ///< of a, and so on
  exp,
  expm1,
  log,
  log1p,
  tanh,
  sigmoid,
  softplus,
  erf,  ///< erf(value a), and erfc and bell alike: the factor often cancels one of theirs
  erfc,
  bell,  ///< exp(-(value a)^2), of which the derivatives of erf and erfc are multiples
  sqrt,
  abs,
  sign,  ///< of NaN it is NaN
  stop,  ///< a, without a gradient
  add,
  subtract,
  multiply,
  divide,
  power,  ///< a^value
  if_less,
  if_less_equal,
  if_equal,
  if_maximum,  ///< a >= b, or a is NaN: whether a is max(a, b)
  if_minimum,  ///< a <= b, or a is NaN
  sum,         ///< over the last axis
  largest,     ///< over the last axis; NaN if there is one
};

constexpr bool is_leaf(Operation op) { return op <= Operation::length; }
constexpr bool is_binary(Operation op) { return op >= Operation::add && op <= Operation::divide; }
constexpr bool is_choice(Operation op) {
  return op >= Operation::if_less && op <= Operation::if_minimum;
}
constexpr bool is_reduction(Operation op) { return op >= Operation::sum; }
constexpr bool has_factor(Operation op) { return op >= Operation::erf && op <= Operation::bell; }
constexpr bool has_value(Operation op) {
  return op == Operation::constant || op == Operation::power || has_factor(op);
}
constexpr std::size_t operands(Operation op) {
  return is_leaf(op) ? 0 : is_binary(op) ? 2 : is_choice(op) ? 4 : 1;
}

struct Node {
  Operation op = Operation::constant;
  bool is_row = true;  ///< one value per row instead of one per element
  std::array<std::uint16_t, 4> from{};
  double value = 0;

  constexpr bool operator==(const Node& o) const {
    for (std::size_t i = 0; i < operands(op); ++i)
      if (from[i] != o.from[i]) return false;
    return op == o.op && is_row == o.is_row &&
           std::bit_cast<std::uint64_t>(value) == std::bit_cast<std::uint64_t>(o.value);
  }
};

/// Why a function cannot be used.
enum class Fault : std::uint8_t {
  none,
  number,     ///< a value was converted to a number, as by std::exp
  condition,  ///< a condition was converted to bool, as by if
  length,     ///< more nodes than `capacity`
};

/// The nodes of a function or of its derivative.
struct Tape {
  static constexpr std::size_t capacity = 256;
  std::array<Node, capacity> node{};
  std::size_t size = 0;
  Fault fault = Fault::none;
  /// Products with a choice of which one branch is 0 become choices of products, so that a branch
  /// that is not taken adds nothing to a gradient, even where it is infinite.
  bool is_derivative = false;

  constexpr const Node& operator[](int i) const { return node[static_cast<std::size_t>(i)]; }

  /// The first fault counts: others may follow from it.
  constexpr void fail(Fault f) {
    if (fault == Fault::none) fault = f;
  }

  /// The number of an equal node, or of a new one.
  constexpr int put(const Node& n) {
    for (std::size_t i = 0; i < size; ++i)
      if (node[i].op == n.op && node[i] == n) return static_cast<int>(i);
    if (size == capacity) {
      fail(Fault::length);
      return 0;
    }
    node[size] = n;
    return static_cast<int>(size++);
  }
  constexpr int leaf(Operation op, bool is_row) { return put({op, is_row, {}, 0}); }
  constexpr int constant(double value) { return put({Operation::constant, true, {}, value}); }
  constexpr int length() { return leaf(Operation::length, true); }
  constexpr int unary(Operation op, int a) {
    if (const int e = op == Operation::log ? exponent(a) : -1; e >= 0)
      return unary(Operation::softplus, e);
    double factor = 1;
    while (has_factor(op)) {
      const Node& n = (*this)[a];
      if (n.op == Operation::negate) {
        factor = -factor;
        a = n.from[0];
      } else if (n.op == Operation::multiply && is_constant(n.from[0])) {
        factor *= node[n.from[0]].value;
        a = n.from[1];
      } else if (n.op == Operation::multiply && is_constant(n.from[1])) {
        factor *= node[n.from[1]].value;
        a = n.from[0];
      } else if (n.op == Operation::divide && is_constant(n.from[1])) {
        factor /= node[n.from[1]].value;
        a = n.from[0];
      } else {
        break;
      }
    }
    return unary(op, a, has_factor(op) ? factor : 0);
  }
  constexpr int unary(Operation op, int a, double value) {
    return put({op, (*this)[a].is_row, from(a), value});
  }

  constexpr int negate(int a) {
    if (is_constant(a)) return constant(-(*this)[a].value);
    if ((*this)[a].op == Operation::negate) return (*this)[a].from[0];
    if (is_derivative && has_zero(a))
      return choose(a, negate((*this)[a].from[2]), negate((*this)[a].from[3]));
    return unary(Operation::negate, a);
  }
  constexpr int add(int a, int b) {
    if (is_constant(a) && is_constant(b)) return constant((*this)[a].value + (*this)[b].value);
    if (is(a, 0)) return b;
    if (is(b, 0)) return a;
    if (is(a, 1) && (*this)[b].op == Operation::erf) return complement(b, -1);
    if (is(b, 1) && (*this)[a].op == Operation::erf) return complement(a, -1);
    if ((*this)[b].op == Operation::negate) return subtract(a, (*this)[b].from[0]);
    if ((*this)[a].op == Operation::negate) return subtract(b, (*this)[a].from[0]);
    if (is_derivative && same_choice(a, b))
      return choose(a, add((*this)[a].from[2], (*this)[b].from[2]),
                    add((*this)[a].from[3], (*this)[b].from[3]));
    return binary(Operation::add, a < b ? a : b, a < b ? b : a);
  }
  constexpr int subtract(int a, int b) {
    if (is_constant(a) && is_constant(b)) return constant((*this)[a].value - (*this)[b].value);
    if (is(b, 0)) return a;
    if (is(a, 0)) return negate(b);
    if (is(a, 1) && (*this)[b].op == Operation::erf) return complement(b, 1);
    if ((*this)[b].op == Operation::negate) return add(a, (*this)[b].from[0]);
    if (is_derivative && same_choice(a, b))
      return choose(a, subtract((*this)[a].from[2], (*this)[b].from[2]),
                    subtract((*this)[a].from[3], (*this)[b].from[3]));
    return binary(Operation::subtract, a, b);
  }
  constexpr int multiply(int a, int b) {
    if (is_constant(a) && is_constant(b)) return constant((*this)[a].value * (*this)[b].value);
    if (is(a, 1)) return b;
    if (is(b, 1)) return a;
    if (is_derivative && (is(a, 0) || is(b, 0))) return constant(0);
    if (is(a, -1)) return negate(b);
    if (is(b, -1)) return negate(a);
    if ((*this)[a].op == Operation::negate) return negate(multiply((*this)[a].from[0], b));
    if ((*this)[b].op == Operation::negate) return negate(multiply(a, (*this)[b].from[0]));
    if (is_derivative && has_zero(a))
      return choose(a, multiply((*this)[a].from[2], b), multiply((*this)[a].from[3], b));
    if (is_derivative && has_zero(b))
      return choose(b, multiply(a, (*this)[b].from[2]), multiply(a, (*this)[b].from[3]));
    return binary(Operation::multiply, a < b ? a : b, a < b ? b : a);
  }
  constexpr int divide(int a, int b) {
    if (is(b, 1)) return a;
    if (is_constant(a) && is_constant(b) && !is(b, 0))
      return constant((*this)[a].value / (*this)[b].value);
    if (is_derivative && is(a, 0)) return a;
    if (const int e = exponent(b); e >= 0) return multiply(a, unary(Operation::sigmoid, negate(e)));
    if ((*this)[a].op == Operation::negate) return negate(divide((*this)[a].from[0], b));
    if (is_derivative && has_zero(a))
      return choose(a, divide((*this)[a].from[2], b), divide((*this)[a].from[3], b));
    return binary(Operation::divide, a, b);
  }
  /// a^e, as products for small whole numbers.
  constexpr int power(int a, double e) {
    if (e == 0) return constant(1);
    if (e == 0.5) return unary(Operation::sqrt, a);
    if (e < 0 && e >= -8 && e == static_cast<double>(static_cast<int>(e)))
      return divide(constant(1), power(a, -e));
    if (e > 0 && e <= 8 && e == static_cast<double>(static_cast<int>(e))) {
      const int whole = static_cast<int>(e), half = whole > 1 ? power(a, whole / 2) : a;
      if (whole == 1) return a;
      return whole % 2 == 0 ? multiply(half, half) : multiply(multiply(half, half), a);
    }
    return unary(Operation::power, a, e);
  }
  constexpr int choose(Operation op, int a, int b, int u, int v) {
    if (u == v) return u;
    const bool is_row =
        (*this)[a].is_row && (*this)[b].is_row && (*this)[u].is_row && (*this)[v].is_row;
    return put({op, is_row, from(a, b, u, v), 0});
  }
  /// A sum or a maximum over the last axis; a value per row is its own.
  constexpr int reduce(Operation op, int a) {
    if ((*this)[a].is_row) return a;
    if (is_derivative && op == Operation::sum) {
      // Factors of the whole row stand before its sum.
      const Node n = (*this)[a];
      if (n.op == Operation::negate) return negate(reduce(op, n.from[0]));
      if (n.op == Operation::multiply && (*this)[n.from[0]].is_row)
        return multiply(n.from[0], reduce(op, n.from[1]));
      if (n.op == Operation::multiply && (*this)[n.from[1]].is_row)
        return multiply(n.from[1], reduce(op, n.from[0]));
      if (n.op == Operation::divide && (*this)[n.from[1]].is_row)
        return divide(reduce(op, n.from[0]), n.from[1]);
    }
    return put({op, true, from(a), 0});
  }

  constexpr bool is_constant(int a) const { return (*this)[a].op == Operation::constant; }
  constexpr bool is(int a, double value) const {
    return is_constant(a) && (*this)[a].value == value;
  }

 private:
  // Formulas as they are usually written, and what keeps their digits and does not overflow:
  //   1 + erf(a)   erfc(-a)     x / (1 + exp(a))   x sigmoid(-a)     log(1 + exp(a))   softplus(a)
  /// e if node a is 1 + exp(e), otherwise -1.
  constexpr int exponent(int a) const {
    const Node& n = (*this)[a];
    if (n.op != Operation::add) return -1;
    const int other = is(n.from[0], 1) ? n.from[1] : is(n.from[1], 1) ? n.from[0] : -1;
    return other >= 0 && (*this)[other].op == Operation::exp ? (*this)[other].from[0] : -1;
  }
  /// 1 + erf(a) for sign -1, 1 - erf(a) for 1.
  constexpr int complement(int erf, int sign) {
    return unary(Operation::erfc, (*this)[erf].from[0], sign * (*this)[erf].value);
  }
  static constexpr std::array<std::uint16_t, 4> from(int a, int b = 0, int u = 0, int v = 0) {
    return {static_cast<std::uint16_t>(a), static_cast<std::uint16_t>(b),
            static_cast<std::uint16_t>(u), static_cast<std::uint16_t>(v)};
  }
  constexpr int binary(Operation op, int a, int b) {
    return put({op, (*this)[a].is_row && (*this)[b].is_row, from(a, b), 0});
  }
  /// Whether a is a choice of which a branch is 0.
  constexpr bool has_zero(int a) const {
    return is_choice((*this)[a].op) && (is((*this)[a].from[2], 0) || is((*this)[a].from[3], 0));
  }
  constexpr bool same_choice(int a, int b) const {
    return is_choice((*this)[a].op) && (*this)[a].op == (*this)[b].op &&
           (*this)[a].from[0] == (*this)[b].from[0] && (*this)[a].from[1] == (*this)[b].from[1];
  }
  /// The choice of a with other branches.
  constexpr int choose(int a, int u, int v) {
    return choose((*this)[a].op, (*this)[a].from[0], (*this)[a].from[1], u, v);
  }
};

/// The nodes that `roots` need, in the same order; node `cut` becomes the leaf `output`. The roots'
/// new numbers replace the old ones. cut: -1 for none.
template <std::size_t N>
constexpr Tape needed_by(const Tape& whole, std::array<int, N>& roots, int cut = -1) {
  std::array<bool, Tape::capacity> needed{};
  for (const int root : roots) needed[static_cast<std::size_t>(root)] = true;
  for (int i = static_cast<int>(whole.size) - 1; i >= 0; --i)
    if (needed[static_cast<std::size_t>(i)] && i != cut)
      for (std::size_t k = 0; k < operands(whole[i].op); ++k) needed[whole[i].from[k]] = true;
  Tape result;
  result.fault = whole.fault;
  std::array<std::uint16_t, Tape::capacity> number{};
  for (std::size_t i = 0; i < whole.size; ++i) {
    if (!needed[i]) continue;
    Node n = whole.node[i];
    if (static_cast<int>(i) == cut) n = {Operation::output, n.is_row, {}, 0};
    for (std::size_t k = 0; k < operands(n.op); ++k) n.from[k] = number[n.from[k]];
    number[i] = static_cast<std::uint16_t>(result.size);
    result.node[result.size++] = n;
  }
  for (int& root : roots) root = number[static_cast<std::size_t>(root)];
  return result;
}

/// Whether a node of this kind is among the nodes.
constexpr bool has(const Tape& tape, Operation op) {
  for (std::size_t i = 0; i < tape.size; ++i)
    if (tape.node[i].op == op) return true;
  return false;
}
constexpr bool has_reduction(const Tape& tape) {
  return has(tape, Operation::sum) || has(tape, Operation::largest);
}

}  // namespace lockstep::functions
