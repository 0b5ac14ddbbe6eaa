/// \file
/// The values that a function of `ls::Function` computes with: it is called once, at compile time,
/// and its operations are recorded.
#pragma once

#include <concepts>
#include <type_traits>

#include "lockstep/functions/tape.hpp"

namespace lockstep {

/// Operations on values; the arguments' type finds them, so that `exp(x)` needs no namespace.
namespace functions {

class Condition;

/// A value of a function: the element x of a tensor, or what was computed from it. Operators
/// `+ - * /`; comparisons, for `select`; and
///
///     exp expm1 log log1p tanh sigmoid softplus erf erfc sqrt abs square pow(x, number)
///     max(a, b) min(a, b) select(a < b, u, v)    element by element
///     sum(x) mean(x) max(x)                      over the last axis, for each row
///     stop_gradient(x)                           x, whose gradient is not computed
///
/// Numbers are constants. In a scope with `using namespace lockstep`, where tanh, sigmoid and
/// softplus are activations, write functions::tanh(x). A value per row, such as sum(x), combines
/// with each element of its row.
class Expression {
 public:
  constexpr Expression() = default;  ///< 0
  /// A constant. Explicit, so that `c ? x : 0.0` converts to a number, which select's sentence
  /// reports.
  template <class N>
    requires std::is_arithmetic_v<N>
  constexpr explicit Expression(N value) : value_(static_cast<double>(value)) {}
  constexpr Expression(Tape& tape, int node) : tape_(&tape), node_(node) {}

  constexpr Tape* tape() const { return tape_; }
  /// The node on a tape.
  constexpr int on(Tape& tape) const { return tape_ == nullptr ? tape.constant(value_) : node_; }

  /// Functions that take numbers, such as std::exp, cannot be recorded.
  constexpr operator double() const {
    if (tape_ != nullptr) tape_->fail(Fault::number);
    return value_;
  }

  template <class B>
  constexpr Expression& operator+=(const B& b) {
    return *this = *this + b;
  }
  template <class B>
  constexpr Expression& operator-=(const B& b) {
    return *this = *this - b;
  }
  template <class B>
  constexpr Expression& operator*=(const B& b) {
    return *this = *this * b;
  }
  template <class B>
  constexpr Expression& operator/=(const B& b) {
    return *this = *this / b;
  }

 private:
  Tape* tape_ = nullptr;
  int node_ = 0;
  double value_ = 0;
};

/// a < b and its like. Only `select` can use it, since both branches are recorded.
class Condition {
 public:
  constexpr Condition(Operation op, const Expression& a, const Expression& b, bool is_not = false)
      : op_(op), a_(a), b_(b), is_not_(is_not) {}
  constexpr Condition operator!() const { return {op_, a_, b_, !is_not_}; }
  constexpr operator bool() const {
    if (Tape* const tape = a_.tape() ? a_.tape() : b_.tape()) tape->fail(Fault::condition);
    return true;
  }
  constexpr Expression choose(const Expression& u, const Expression& v) const {
    Tape* tape = nullptr;
    for (const Expression* one : {&a_, &b_, &u, &v})
      if (one->tape() != nullptr) tape = one->tape();
    if (tape == nullptr) return u;
    const int yes = u.on(*tape), no = v.on(*tape);
    return {*tape,
            tape->choose(op_, a_.on(*tape), b_.on(*tape), is_not_ ? no : yes, is_not_ ? yes : no)};
  }

 private:
  Operation op_;
  Expression a_, b_;
  bool is_not_;
};

template <class A>
concept Operand = std::same_as<A, Expression> || std::is_arithmetic_v<A>;
/// Operands of which one is a value: exact matches, so that no operator of numbers competes.
template <class A, class B>
concept Operands =
    Operand<A> && Operand<B> && (std::same_as<A, Expression> || std::same_as<B, Expression>);

/// Records an operation with two operands.
template <class Add>
constexpr Expression record(const Expression& a, const Expression& b, const Add& add) {
  Tape* const tape = a.tape() ? a.tape() : b.tape();
  Tape numbers;  // of a function of constants
  Tape& on = tape ? *tape : numbers;
  const int node = add(on, a.on(on), b.on(on));
  if (tape == nullptr) return Expression(numbers[node].value);
  return {*tape, node};
}
constexpr Expression record(Operation op, const Expression& a) {
  if (a.tape() == nullptr) throw "a function of a number: not a constant expression";
  return {*a.tape(), a.tape()->unary(op, a.on(*a.tape()))};
}

template <class A, class B>
  requires Operands<A, B>
constexpr Expression operator+(const A& a, const B& b) {
  return record(Expression(a), Expression(b), [](Tape& t, int i, int k) { return t.add(i, k); });
}
template <class A, class B>
  requires Operands<A, B>
constexpr Expression operator-(const A& a, const B& b) {
  return record(Expression(a), Expression(b),
                [](Tape& t, int i, int k) { return t.subtract(i, k); });
}
template <class A, class B>
  requires Operands<A, B>
constexpr Expression operator*(const A& a, const B& b) {
  return record(Expression(a), Expression(b),
                [](Tape& t, int i, int k) { return t.multiply(i, k); });
}
template <class A, class B>
  requires Operands<A, B>
constexpr Expression operator/(const A& a, const B& b) {
  return record(Expression(a), Expression(b), [](Tape& t, int i, int k) { return t.divide(i, k); });
}
constexpr Expression operator-(const Expression& a) {
  return record(a, a, [](Tape& t, int i, int) { return t.negate(i); });
}
constexpr Expression operator+(const Expression& a) { return a; }

template <class A, class B>
  requires Operands<A, B>
constexpr Condition operator<(const A& a, const B& b) {
  return {Operation::if_less, Expression(a), Expression(b)};
}
template <class A, class B>
  requires Operands<A, B>
constexpr Condition operator>(const A& a, const B& b) {
  return {Operation::if_less, Expression(b), Expression(a)};
}
template <class A, class B>
  requires Operands<A, B>
constexpr Condition operator<=(const A& a, const B& b) {
  return {Operation::if_less_equal, Expression(a), Expression(b)};
}
template <class A, class B>
  requires Operands<A, B>
constexpr Condition operator>=(const A& a, const B& b) {
  return {Operation::if_less_equal, Expression(b), Expression(a)};
}
template <class A, class B>
  requires Operands<A, B>
constexpr Condition operator==(const A& a, const B& b) {
  return {Operation::if_equal, Expression(a), Expression(b)};
}
template <class A, class B>
  requires Operands<A, B>
constexpr Condition operator!=(const A& a, const B& b) {
  return {Operation::if_equal, Expression(a), Expression(b), true};
}

/// u where the condition is true, else v. The branch that is not taken has no gradient.
template <Operand U, Operand V>
constexpr Expression select(const Condition& condition, const U& u, const V& v) {
  return condition.choose(Expression(u), Expression(v));
}

constexpr Expression exp(const Expression& a) { return record(Operation::exp, a); }
constexpr Expression expm1(const Expression& a) { return record(Operation::expm1, a); }
constexpr Expression log(const Expression& a) { return record(Operation::log, a); }
constexpr Expression log1p(const Expression& a) { return record(Operation::log1p, a); }
constexpr Expression tanh(const Expression& a) { return record(Operation::tanh, a); }
/// 1 / (1 + exp(-a)); its gradient does not overflow.
constexpr Expression sigmoid(const Expression& a) { return record(Operation::sigmoid, a); }
/// log(1 + exp(a)), without overflow.
constexpr Expression softplus(const Expression& a) { return record(Operation::softplus, a); }
constexpr Expression erf(const Expression& a) { return record(Operation::erf, a); }
/// 1 - erf(a), which keeps its digits where erf(a) is near 1.
constexpr Expression erfc(const Expression& a) { return record(Operation::erfc, a); }
constexpr Expression sqrt(const Expression& a) { return record(Operation::sqrt, a); }
constexpr Expression abs(const Expression& a) { return record(Operation::abs, a); }
constexpr Expression square(const Expression& a) { return a * a; }
/// a^e for a number e.
template <class E>
  requires std::is_arithmetic_v<E>
constexpr Expression pow(const Expression& a, E e) {
  return record(a, a, [e](Tape& t, int i, int) { return t.power(i, static_cast<double>(e)); });
}
/// a, as a constant: no gradient flows through it.
constexpr Expression stop_gradient(const Expression& a) { return record(Operation::stop, a); }

/// The larger one; of equal ones the first has the gradient.
template <class A, class B>
  requires Operands<A, B>
constexpr Expression max(const A& a, const B& b) {
  return Condition(Operation::if_maximum, Expression(a), Expression(b))
      .choose(Expression(a), Expression(b));
}
template <class A, class B>
  requires Operands<A, B>
constexpr Expression min(const A& a, const B& b) {
  return Condition(Operation::if_minimum, Expression(a), Expression(b))
      .choose(Expression(a), Expression(b));
}

/// Over the last axis.
constexpr Expression sum(const Expression& a) {
  return record(a, a, [](Tape& t, int i, int) { return t.reduce(Operation::sum, i); });
}
constexpr Expression mean(const Expression& a) {
  return record(a, a, [](Tape& t, int i, int) {
    return t[i].is_row ? i : t.divide(t.reduce(Operation::sum, i), t.length());
  });
}
constexpr Expression max(const Expression& a) {
  return record(a, a, [](Tape& t, int i, int) { return t.reduce(Operation::largest, i); });
}

}  // namespace functions

using functions::Expression;

}  // namespace lockstep
