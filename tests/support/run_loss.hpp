/// \file
/// Runs one loss kernel outside a model.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "lockstep/concepts/kernel_calls.hpp"
#include "lockstep/concepts/loss.hpp"
#include "support/run_kernel.hpp"

namespace testing {

template <class T>
struct LossResult {
  double sum = 0;
  std::vector<T> gradient;
};

/// The sum over `count` examples and the gradient of sum * scale. `weight`: per example, per row of
/// one, or empty. `before`: the sum that the kernel adds to.
template <class D, class Op>
LossResult<typename D::real> run_loss(
    const Op& op, std::size_t count, const std::vector<typename D::real>& prediction,
    const std::vector<lockstep::target_as<typename Op::target_type, typename D::real>>& target,
    double scale, const D& device = {}, const std::vector<typename D::real>& weight = {},
    double before = 1) {
  using T = typename D::real;
  using Target = lockstep::target_as<typename Op::target_type, T>;
  auto context = device.open(1, 0);
  [[maybe_unused]] const auto scope = context.scope();
  DeviceArray<D, T> p(context, prediction), g(context, prediction.size()), w(context, weight);
  DeviceArray<D, Target> t(context, target);
  DeviceArray<D, double> sum(context, 1);
  LossResult<T> result;
  const auto run = [&](T* gradient) {
    sum.upload({before});
    lockstep::detail::run_kernel<D>(
        op, lockstep::LossIo<D, typename Op::target_type>{
                context, count, p.data(), t.data(), gradient, scale, sum.data(),
                weight.empty() ? nullptr : w.data(),
                std::max<std::size_t>(weight.size() / std::max<std::size_t>(count, 1), 1)});
    return sum.download()[0] - before;
  };
  result.sum = run(g.data());
  result.gradient = g.download();
  const double again = run(nullptr);
  if (again != result.sum && !(std::isnan(again) && std::isnan(result.sum)))
    throw std::logic_error("the loss is another number when nobody wants its gradient");
  return result;
}

}  // namespace testing
