/// \file
/// Layers that join two branches: checks on generated shapes, for each device. `Tested` comes from
/// the device's compare.hpp.
#pragma once

#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>

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
  check(lockstep::AverageOp{in, 3});
  check(lockstep::MaximumOp{in});
  check(lockstep::MinimumOp{in});
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
