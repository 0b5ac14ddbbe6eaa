/// \file
/// Runs one metric's kernel outside a model.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/concepts/kernel_calls.hpp"
#include "lockstep/concepts/metric.hpp"
#include "support/run_kernel.hpp"

namespace testing {

/// The metric's state after all examples, accumulated `part` of them at a time. `weight`: per
/// example, per row of one, or empty.
template <class D, class Target, class M>
std::vector<double> run_metric(
    const M& metric, lockstep::Shape out, const std::vector<typename D::real>& prediction,
    const std::vector<lockstep::target_as<Target, typename D::real>>& target, std::size_t part = 2,
    const std::vector<typename D::real>& weight = {}) {
  const auto op = metric.template op<Target>(out);
  using T = typename D::real;
  auto context = D{}.open(1, 0);
  [[maybe_unused]] const auto scope = context.scope();
  DeviceArray<D, T> p(context, prediction), w(context, weight);
  DeviceArray<D, lockstep::target_as<Target, T>> t(context, target);
  DeviceArray<D, double> state(context, std::vector<double>(M::state_size));
  const std::size_t count = prediction.size() / op.size();
  const std::size_t weights = count == 0 ? 1 : std::max<std::size_t>(weight.size() / count, 1);
  for (std::size_t first = 0; first < count; first += part)
    lockstep::detail::run_kernel<D>(
        op, lockstep::MetricIo<D, Target>{
                context, std::min(part, count - first), p.data() + first * op.size(),
                t.data() + first * op.target_size(), state.data(),
                weight.empty() ? nullptr : w.data() + first * weights, weights});
  return state.download();
}

/// The metric's value after all rows.
template <class D, class Target, class M>
double metric_value(const M& metric, lockstep::Shape out,
                    const std::vector<typename D::real>& prediction,
                    const std::vector<lockstep::target_as<Target, typename D::real>>& target,
                    const std::vector<typename D::real>& weight = {}) {
  return metric.result(run_metric<D, Target>(metric, out, prediction, target, 2, weight).data());
}

}  // namespace testing
