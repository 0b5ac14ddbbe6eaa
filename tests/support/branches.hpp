/// \file
/// Layers that join two branches: checks on generated shapes, for each device. `Tested` comes from
/// the device's compare.hpp.
#pragma once

#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "lockstep/layers/layers.hpp"
#include "support/kernel_numbers.hpp"

namespace testing {

inline lockstep::Shape generated_branch(lockstep::Philox& g) {
  return lockstep::shape(between(g, 1, 40), between(g, 1, 40), between(g, 1, 20));
}

template <class Op>
Numbers numbers_of_branches(const Op& op, std::size_t count) {
  Numbers n = numbers(op, op.in.size(), 0, count);
  std::size_t other = n.x.size();
  if constexpr (requires { op.other; })
    other = other / static_cast<std::size_t>(op.in.channels()) * static_cast<std::size_t>(op.other);
  n.x2 = as<float>(normal_values(other, 9));
  return n;
}

template <class Tested>
void adds_branches() {
  lockstep::Philox g(8);
  for (int i = 0; i < Tested::shapes; ++i) {
    const lockstep::AddOp op{generated_branch(g)};
    INFO(to_string(op.in));
    const auto count = static_cast<std::size_t>(between(g, Tested::least_count, 5));
    Tested::check(op, count, numbers_of_branches(op, count));
  }
}

template <class Tested>
void concatenates_branches() {
  lockstep::Philox g(32);
  for (int i = 0; i < Tested::shapes; ++i) {
    const lockstep::ConcatenateOp op{generated_branch(g), between(g, 1, 20)};
    INFO(to_string(op.in) << " and " << op.other);
    const auto count = static_cast<std::size_t>(between(g, Tested::least_count, 5));
    Tested::check(op, count, numbers_of_branches(op, count));
  }
}

/// Calls check(op) for each element-by-element merge.
template <class Check>
void pairwise_merges(lockstep::Shape in, const Check& check) {
  check(lockstep::MultiplyOp{in});
  check(lockstep::SubtractOp{in});
  check(lockstep::AverageOp{in});
  check(lockstep::AddOp{in});
  check(lockstep::MaximumOp{in});
  check(lockstep::MinimumOp{in});
}

/// The values, or the gradients, of several operands, one example after the other.
template <class T>
using OperandValues = std::vector<std::vector<T>>;

/// Runs an op with n operands. \returns y, and the gradient of each operand.
template <class D, class O>
std::pair<std::vector<double>, OperandValues<double>> run_merge(const D& device, const O& op,
                                                                std::size_t count,
                                                                const OperandValues<double>& x,
                                                                const std::vector<double>& dy) {
  using T = typename D::real;
  RunOptions<T> options;
  options.x2 = as<T>(x[1]);
  for (std::size_t k = 2; k < x.size(); ++k) options.more.push_back(as<T>(x[k]));
  const auto run = run_layer<D>(op, count, as<T>(x[0]), {}, as<T>(dy), options, device);
  OperandValues<double> dx{as<double>(run.dx), as<double>(run.dx2)};
  for (const auto& gradient : run.more_dx) dx.push_back(as<double>(gradient));
  return {as<double>(run.y), dx};
}

/// n values of which many are equal, and which all types can represent.
inline std::vector<double> coarse_values(lockstep::Philox& g, std::size_t n) {
  std::vector<double> values(n);
  for (double& v : values) v = between(g, -1, 1) * 0.5 + 1.25;
  return values;
}

using Operands = std::vector<double>;
inline double product_of_others(const Operands& x, std::size_t but) {
  double product = 1;
  for (std::size_t j = 0; j < x.size(); ++j) product *= j == but ? 1 : x[j];
  return product;
}
inline double product_of_all(const Operands& x) { return product_of_others(x, x.size()); }
inline double largest(const Operands& x) { return *std::max_element(x.begin(), x.end()); }
inline double smallest(const Operands& x) { return *std::min_element(x.begin(), x.end()); }
// The first of equal ones.
inline double is_largest(const Operands& x, std::size_t k) {
  return std::max_element(x.begin(), x.end()) - x.begin() == std::ptrdiff_t(k) ? 1 : 0;
}
inline double is_smallest(const Operands& x, std::size_t k) {
  return std::min_element(x.begin(), x.end()) - x.begin() == std::ptrdiff_t(k) ? 1 : 0;
}

/// Merges of 2 to 20 operands against plain loops in double, values and all gradients.
template <class D>
void merges_many(const D& device, double allowed) {
  lockstep::Philox g(35);
  const auto check = [&](const auto& op, const auto& value, const auto& gradient) {
    const std::size_t count = 3, n = op.operands(), size = count * op.in.size();
    OperandValues<double> x(n), dx(n, std::vector<double>(size));
    for (auto& values : x) values = coarse_values(g, size);
    const std::vector<double> dy = coarse_values(g, size);
    std::vector<double> y(size), at(n);
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t k = 0; k < n; ++k) at[k] = x[k][i];
      y[i] = value(at);
      for (std::size_t k = 0; k < n; ++k) dx[k][i] = dy[i] * gradient(at, k);
    }
    const auto [found, gradients] = run_merge(device, op, count, x, dy);
    INFO(n << " operands");
    CHECK(relative_error(found, y) <= allowed);
    for (std::size_t k = 0; k < n; ++k) CHECK(relative_error(gradients[k], dx[k]) <= allowed);
  };
  const auto sum = [](const auto& x) { return std::accumulate(x.begin(), x.end(), 0.0); };
  for (const int n : {2, 3, between(g, 4, 12), between(g, 13, 20)}) {
    const lockstep::Shape in = lockstep::shape(between(g, 1, 9), between(g, 1, 40));
    const int further = n - 1;
    check(lockstep::AddOp{in, further}, sum, [](const auto&, std::size_t) { return 1.0; });
    check(
        lockstep::AverageOp{in, further}, [&](const auto& x) { return sum(x) / n; },
        [&](const auto&, std::size_t) { return 1.0 / n; });
    check(lockstep::MultiplyOp{in, further}, product_of_all, product_of_others);
    check(lockstep::MaximumOp{in, further}, largest, is_largest);
    check(lockstep::MinimumOp{in, further}, smallest, is_smallest);
  }
}

/// Merges of 2 to 15 operands with masks against plain loops in double over the operands that are not
/// padded.
template <class D>
void merges_with_masks(const D& device, double allowed) {
  lockstep::Philox g(36);
  const auto check = [&]<class M>(M merge, const auto& value, const auto& gradient) {
    const lockstep::MaskedMergeOp<M> op{merge};
    const std::size_t count = 3, n = op.values(), size = count * merge.in.size();
    OperandValues<double> x(n), dx(n, std::vector<double>(size));
    for (auto& values : x) values = coarse_values(g, size);
    for (std::size_t k = 0; k < n; ++k) {
      auto& mask = x.emplace_back(size / op.width());
      for (std::size_t s = 0; s < mask.size(); ++s) mask[s] = s == 1 ? 0 : between(g, 0, 1);
    }
    const std::vector<double> dy = coarse_values(g, size);
    std::vector<double> y(size);
    for (std::size_t i = 0; i < size; ++i) {
      std::vector<double> at;
      for (std::size_t k = 0; k < n; ++k)
        if (x[n + k][i / op.width()] == 1) at.push_back(x[k][i]);
      y[i] = !at.empty() ? value(at) : M::keeps_padded ? x[0][i] : 0;
      if (at.empty() && M::keeps_padded) dx[0][i] = dy[i];
      for (std::size_t k = 0, j = 0; k < n; ++k)
        if (x[n + k][i / op.width()] == 1) dx[k][i] = dy[i] * gradient(at, j++);
    }
    const auto [found, gradients] = run_merge(device, op, count, x, dy);
    INFO(n << " operands");
    CHECK(relative_error(found, y) <= allowed);
    for (std::size_t k = 0; k < n; ++k) CHECK(relative_error(gradients[k], dx[k]) <= allowed);
  };
  for (const int n : {2, 3, between(g, 4, 12), between(g, 13, 15)}) {
    const lockstep::Shape in = lockstep::shape(between(g, 1, 9), between(g, 1, 40));
    const int further = n - 1;
    check(lockstep::MultiplyOp{in, further}, product_of_all, product_of_others);
    check(lockstep::MaximumOp{in, further}, largest, is_largest);
    check(lockstep::MinimumOp{in, further}, smallest, is_smallest);
  }
}

/// Concatenations of 2 to 20 operands along random axes, by the index of each element.
template <class D>
void concatenates_many(const D& device) {
  lockstep::Philox g(36);
  for (const int n : {2, 3, between(g, 4, 12), between(g, 13, 20)})
    for (int rank = 1; rank <= 3; ++rank) {
      const std::size_t count = 2;
      const int axis = between(g, 1, rank);
      lockstep::Shape shape{};
      shape.rank = rank;
      for (int k = 0; k < rank; ++k) shape.extent[std::size_t(k)] = between(g, 1, 6);
      std::vector<int> extent;
      for (int k = 0; k < n; ++k) extent.push_back(between(g, 1, 5));
      shape.extent[std::size_t(axis - 1)] = extent[0];
      const lockstep::ConcatenateOp op{shape, std::accumulate(extent.begin() + 1, extent.end(), 0),
                                       between(g, 0, 1) ? axis : axis - 1 - rank, n - 1};
      std::size_t rows = count, inner = 1;
      for (int k = 0; k < axis - 1; ++k) rows *= std::size_t(shape[k]);
      for (int k = axis; k < rank; ++k) inner *= std::size_t(shape[k]);
      OperandValues<double> x, dx;
      std::vector<double> y(count * op.out().size());
      const std::vector<double> dy = coarse_values(g, y.size());
      std::size_t first = 0;
      for (const int e : extent) {
        const std::size_t own = std::size_t(e) * inner;
        dx.emplace_back(rows * own);
        x.push_back(coarse_values(g, rows * own));
        for (std::size_t r = 0; r < rows; ++r)
          for (std::size_t i = 0; i < own; ++i) {
            const std::size_t at = r * (y.size() / rows) + first + i;
            y[at] = x.back()[r * own + i];
            dx.back()[r * own + i] = dy[at];
          }
        first += own;
      }
      INFO(n << " operands of rank " << rank << ", axis " << op.axis);
      const auto [found, gradients] = run_merge(device, op, count, x, dy);
      CHECK(found == y);
      CHECK(gradients == dx);
    }
}

/// Numbers of which some are equal in both branches.
template <class Op>
Numbers numbers_with_ties(const Op& op, std::size_t count) {
  Numbers n = numbers_of_branches(op, count);
  for (std::size_t i = 0; i < n.x.size(); i += 3) n.x2[i] = n.x[i];
  return n;
}

/// A Dot of generated shapes, with its number of axes of each value.
inline lockstep::DotOp generated_dot(lockstep::Philox& g) {
  lockstep::DotOp op{};
  op.in.rank = between(g, 1, 3);
  op.other.rank = between(g, 1, std::min(3, 6 - op.in.rank));
  for (lockstep::Shape* s : {&op.in, &op.other})
    for (int k = 0; k < s->rank; ++k)
      s->extent[static_cast<std::size_t>(k)] = one_of(g, 1, 2, 3, 5, 7);
  op.axes = {between(g, 1, op.in.rank), between(g, 1, op.other.rank)};
  const int length = one_of(g, 1, 3, 8, 70);
  op.in.extent[static_cast<std::size_t>(op.axes.first - 1)] = length;
  op.other.extent[static_cast<std::size_t>(op.axes.second - 1)] = length;
  op.normalize = length > 1 && between(g, 0, 1) == 1;
  return op;
}
inline Numbers numbers_of_dot(const lockstep::DotOp& op, std::size_t count) {
  Numbers n = numbers(op, op.in.size(), 0, count);
  n.x2 = as<float>(normal_values(count * op.other.size(), 9));
  return n;
}

template <class Tested>
void multiplies_branches() {
  lockstep::Philox g(34);
  for (int i = 0; i < Tested::shapes; ++i) {
    const lockstep::DotOp op = generated_dot(g);
    INFO(to_string(op.in) << " and " << to_string(op.other) << ", axes " << op.axes.first << ", "
                          << op.axes.second << (op.normalize ? ", normalized" : ""));
    const auto count = static_cast<std::size_t>(between(g, Tested::least_count, 5));
    Tested::check(op, count, numbers_of_dot(op, count));
  }
}

template <class Tested>
void merges_branches() {
  lockstep::Philox g(33);
  for (int i = 0; i < 3; ++i) {
    const auto count = static_cast<std::size_t>(between(g, Tested::least_count, 5));
    pairwise_merges(generated_branch(g), [&](const auto& op) {
      INFO(to_string(op.in));
      Tested::check(op, count, numbers_with_ties(op, count));
    });
  }
}

template <class Tested>
void joins_branches_in_bfloat16() {
  Tested::need_half();
  lockstep::Philox g(5);
  for (int i = 0; i < Tested::half_shapes; ++i) {
    const lockstep::Shape in = generated_branch(g);
    const auto count = static_cast<std::size_t>(between(g, 1, 5));
    INFO(to_string(in));
    const lockstep::AddOp add{in};
    Tested::check_half(add, count, numbers_of_branches(add, count));
    const lockstep::ConcatenateOp both{in, 3};
    Tested::check_half(both, count, numbers_of_branches(both, count));
    const lockstep::DotOp dot = generated_dot(g);
    Tested::check_half(dot, count, numbers_of_dot(dot, count));
    pairwise_merges(
        in, [&](const auto& op) { Tested::check_half(op, count, numbers_with_ties(op, count)); });
  }
}

}  // namespace testing
