/// \file
/// The derivative of a function: reverse mode on its tape, at compile time. Invariant: a branch
/// that is not taken adds nothing to a gradient, even if its derivative is infinite or NaN.
///
///     d sum(a) / da[k] = 1             d max(a) / da[k] = [a[k] = m] / number of j with a[j] = m
///     d max(a, b) / da = [a >= b]      d |a| / da = sign(a), 0 at 0
///
/// A maximum over the last axis divides its gradient among equal elements, as torch.amax and
/// TensorFlow's reduce_max do; of two equal operands the first one has it, as in TensorFlow and
/// ls::Maximum.
#pragma once

#include <array>
#include <cstddef>
#include <numbers>

#include "lockstep/functions/tape.hpp"

namespace lockstep::functions {

/// Appends the derivative with respect to the input of sum(seed * root) over the last axis, which
/// is that of seed * root if there is no reduction. `seed`: a node. \returns the node of the
/// derivative.
constexpr int derive(Tape& t, int root, int seed) {
  t.is_derivative = true;
  const int count = root + 1;
  std::array<bool, Tape::capacity> depends{};
  std::array<int, Tape::capacity> gradient{};
  for (int i = 0; i < count; ++i) {
    gradient[static_cast<std::size_t>(i)] = -1;
    depends[static_cast<std::size_t>(i)] = t[i].op == Operation::input;
    for (std::size_t k = 0; k < operands(t[i].op) && t[i].op != Operation::stop; ++k)
      if (depends[t[i].from[k]]) depends[static_cast<std::size_t>(i)] = true;
  }
  gradient[static_cast<std::size_t>(root)] = seed;
  int result = -1;
  for (int i = root; i >= 0 && t.fault == Fault::none; --i) {
    const int d = gradient[static_cast<std::size_t>(i)];
    if (d < 0 || !depends[static_cast<std::size_t>(i)]) continue;
    const Node n = t[i];
    if (n.op == Operation::input) result = d;
    const int a = n.from[0], b = n.from[1];
    // Adds to the gradient of operand k. A value that all elements of a row use receives the sum.
    const auto add = [&](std::size_t k, int part) {
      const std::size_t to = n.from[k];
      if (!depends[to]) return;
      if (t.node[to].is_row && !n.is_row)
        part = t[part].is_row ? t.multiply(part, t.length()) : t.reduce(Operation::sum, part);
      gradient[to] = gradient[to] < 0 ? part : t.add(gradient[to], part);
    };
    const int one = t.constant(1);
    switch (n.op) {
      case Operation::negate:
        add(0, t.negate(d));
        break;
      case Operation::exp:
        add(0, t.multiply(d, i));
        break;
      case Operation::expm1:
        add(0, t.multiply(d, t.add(i, one)));
        break;
      case Operation::log:
        add(0, t.divide(d, a));
        break;
      case Operation::log1p:
        add(0, t.divide(d, t.add(one, a)));
        break;
      case Operation::tanh:
        add(0, t.multiply(d, t.subtract(one, t.multiply(i, i))));
        break;
      case Operation::sigmoid:
        add(0, t.multiply(d, t.multiply(i, t.subtract(one, i))));
        break;
      case Operation::softplus:
        add(0, t.multiply(d, t.unary(Operation::sigmoid, a)));
        break;
      case Operation::erf:
      case Operation::erfc: {
        const double scale = (n.op == Operation::erf ? 2 : -2) * std::numbers::inv_sqrtpi * n.value;
        const int bell = t.unary(Operation::bell, a, n.value);
        add(0, t.multiply(d, t.multiply(t.constant(scale), bell)));
        break;
      }
      case Operation::bell:
        add(0, t.multiply(d, t.multiply(t.multiply(t.constant(-2 * n.value * n.value), a), i)));
        break;
      case Operation::sqrt:
        add(0, t.divide(t.multiply(d, t.constant(0.5)), i));
        break;
      case Operation::abs:
        add(0, t.multiply(d, t.unary(Operation::sign, a)));
        break;
      case Operation::add:
        add(0, d);
        add(1, d);
        break;
      case Operation::subtract:
        add(0, d);
        add(1, t.negate(d));
        break;
      case Operation::multiply:
        add(0, t.multiply(d, b));
        add(1, t.multiply(d, a));
        break;
      case Operation::divide:
        add(0, t.divide(d, b));
        add(1, t.negate(t.divide(t.multiply(d, i), b)));
        break;
      case Operation::power:
        add(0, t.multiply(d, t.multiply(t.constant(n.value), t.power(a, n.value - 1))));
        break;
      case Operation::sum:
        add(0, d);
        break;
      case Operation::largest: {
        const int zero = t.constant(0);
        const int ties = t.reduce(Operation::sum, t.choose(Operation::if_equal, a, i, one, zero));
        add(0, t.choose(Operation::if_equal, a, i, t.divide(d, ties), zero));
        break;
      }
      default:
        if (is_choice(n.op)) {
          const int zero = t.constant(0);
          add(2, t.choose(n.op, a, b, d, zero));
          add(3, t.choose(n.op, a, b, zero, d));
        }
        break;
    }
  }
  return result < 0 ? t.constant(0) : result;
}

/// A function and its derivative, in one list of nodes.
struct Derived {
  Tape tape{};
  int value = 0, slope = 0;
  bool from_y = false;  ///< the derivative reads y instead of x
};

/// d y / d x of a function without reductions: of y if that suffices, else of x. The value is not
/// among the nodes.
constexpr Derived derivative_of(Tape t) {
  const int root = static_cast<int>(t.size) - 1;
  std::array slope{derive(t, root, t.constant(1))};
  std::array by_y = slope;
  const Tape of_y = needed_by(t, by_y, root), of_x = needed_by(t, slope);
  if (!has(of_y, Operation::input) && has(of_y, Operation::output)) return {of_y, 0, by_y[0], true};
  return {of_x, 0, slope[0], false};
}

/// The value of a loss and its derivative with respect to the prediction.
constexpr Derived value_and_slope(Tape t) {
  const int root = static_cast<int>(t.size) - 1;
  std::array both{root, derive(t, root, t.constant(1))};
  const Tape needed = needed_by(t, both);
  return {needed, both[0], both[1], false};
}

/// dx = sum(dy dy/dx) of a layer with reductions.
constexpr Derived gradient_of(Tape t) {
  const int root = static_cast<int>(t.size) - 1;
  std::array slope{derive(t, root, t.leaf(Operation::slope, t[root].is_row))};
  const Tape needed = needed_by(t, slope);
  return {needed, 0, slope[0], false};
}

}  // namespace lockstep::functions
