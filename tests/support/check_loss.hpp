/// \file
/// Compares the gradient of a loss with central differences of its value.
#pragma once

#include <vector>

#include "support/run_loss.hpp"

namespace testing {

/// Relative error of the gradient of sum / 8 on Device.
template <class D, class Op>
double loss_gradient_error(
    const Op& op, std::vector<typename D::real> p,
    const std::vector<lockstep::target_as<typename Op::target_type, typename D::real>>& t,
    double h = 1e-5) {
  const std::size_t count = p.size() / op.size();
  const auto gradient = run_loss<D>(op, count, p, t, 1.0 / 8).gradient;
  std::vector<double> numeric(p.size());
  for (std::size_t i = 0; i < p.size(); ++i) {
    const auto value = p[i];
    p[i] = value + h;
    const double above = run_loss<D>(op, count, p, t, 1).sum;
    p[i] = value - h;
    numeric[i] = (above - run_loss<D>(op, count, p, t, 1).sum) / (2 * h) / 8;
    p[i] = value;
  }
  return relative_error(gradient, numeric);
}

}  // namespace testing
