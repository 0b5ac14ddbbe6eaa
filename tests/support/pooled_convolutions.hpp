/// \file
/// Convolution fused with ReLU and max pooling, and the three ops in sequence.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "lockstep/devices/fused_relu.hpp"
#include "lockstep/model/plan.hpp"
#include "lockstep/reference.hpp"
#include "support/kernel_numbers.hpp"

namespace testing {

/// The fused op of a convolution, a ReLU and a pool.
inline lockstep::ConvReLUPoolOp pooled(const lockstep::Conv2DOp& conv,
                                       lockstep::KernelSize pool = {2, 2},
                                       lockstep::Strides strides = {2, 2}) {
  return {conv, lockstep::ReLU::op(conv.out()), {{conv.out(), pool, strides}}};
}

/// Values coarse enough that float convolves them exactly. Otherwise, of two nearly equal elements
/// in a window, a different one could win in double and receive the gradient.
inline void make_coarse(Numbers& n) {
  for (auto* values : {&n.x, &n.w})
    for (float& v : *values) v = std::round(32 * v) / 32;
}

/// The three ops in sequence on Reference<double>.
inline LayerResult<double> one_by_one(const lockstep::ConvReLUPoolOp& op, std::size_t count,
                                      const Numbers& n) {
  using D = lockstep::Reference<double>;
  const auto run_op = [&](const auto& o, const std::vector<double>& x, const std::vector<double>& w,
                          const std::vector<double>& dy, bool want_dx) {
    RunOptions<double> options;
    options.want_dx = want_dx;
    return run_layer<D>(o, count, x, w, dy, options);
  };
  const auto x = as<double>(n.x), w = as<double>(n.w), dy = as<double>(n.dy);
  const auto conv =
      run_op(op.conv, x, w, std::vector<double>(count * op.conv.out().size()), false).y;
  const auto relu = run_op(op.relu, conv, {}, std::vector<double>(conv.size()), true).y;
  const auto pool = run_op(op.pool, relu, {}, dy, true);
  const auto masked = run_op(op.relu, conv, {}, pool.dx, true).dx;
  auto result = run_op(op.conv, x, w, masked, false);
  result.y = pool.y;
  return result;
}

/// The layers covered by each step of a plan.
template <class Net, class D>
std::vector<int> layers_of_steps() {
  constexpr auto& plan = lockstep::detail::PlanOf<Net, D>::plan;
  std::vector<int> result;
  for (lockstep::detail::StepId i{}; i < plan.end(); ++i) result.push_back(plan.step[i].node_count);
  return result;
}

}  // namespace testing
