/// \file
/// Losses and metrics of several outputs, on every device over host memory. Invariant: the losses of
/// examples are computed in the device's type and added in double, head by head.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/heads.hpp"
#include "lockstep/losses/losses_by_output.hpp"
#include "lockstep/metrics/on.hpp"

namespace lockstep {

template <class Losses, HostDevice D>
struct Kernel<LossesOp<Losses>, D> : KernelTraits {
  static constexpr bool weighs = true;
  static void run(const LossesOp<Losses>& op, const LossIo<D, float>& io) {
    op.losses->each([&]<std::size_t o>(Constant<o>, const auto& head) { add<o>(op, head, io); });
  }

 private:
  template <std::size_t o, class Head>
  static void add(const LossesOp<Losses>& op, const Head& head, const LossIo<D, float>& io) {
    using T = typename D::real;
    using Target = typename Head::loss_type::target_type;
    constexpr HeadPlace place = Losses::places[o];
    constexpr std::size_t rows = place.weights, size = place.shape.size() / rows;
    constexpr std::size_t targets = place.targets / rows;
    const auto row = detail::op_of_row<rows>(head.loss.op(place.shape));
    const double share = op.scale[o] / static_cast<double>(rows);
    const double slope = io.scale * head.weight * share;
    double sum = 0;
    for (std::size_t n = 0; n < io.count; ++n)
      for (std::size_t r = 0; r < rows; ++r) {
        const T* const p = io.prediction + n * place.row + place.prediction + r * size;
        const T* const t = io.target + n * place.target_row + place.target + r * targets;
        T* const g = io.gradient == nullptr
                         ? nullptr
                         : io.gradient + n * place.row + place.prediction + r * size;
        double weight =
            io.weight == nullptr
                ? 1
                : static_cast<double>(io.weight[n * place.weight_row + place.weight + r]);
        if (head.masks && weight == 0) {  // the prediction may be anything
          if (g != nullptr) std::fill_n(g, size, T(0));
          continue;
        }
        if (op.trains) weight *= detail::class_weight_of(head.class_weight, t, targets);
        const detail::HeadTargets<Target, targets, T> target(t);
        sum += weight * row.example(p, target.data(), g, weight * slope);
      }
    io.sum[0] += head.weight * share * sum;
    if (!op.adds_means) return;
    io.sum[1 + 2 * o] += share * sum;
    io.sum[2 + 2 * o] += static_cast<double>(io.count);
  }
};

/// Adds nothing: the kernel of all losses has added the means of the heads.
template <FixedString output, HostDevice D>
struct Kernel<HeadLossOp<output>, D> : KernelTraits {
  static void run(const HeadLossOp<output>&, const MetricIo<D, float>&) {}
};

template <class O, HeadPlace place, HostDevice D>
  requires RowwiseMetric<O>
struct Kernel<OnOp<O, place>, D> : KernelTraits {
  static constexpr bool weighs = WeighableMetric<O>;
  static void run(const OnOp<O, place>& op, const MetricIo<D, float>& io) {
    if (io.weight == nullptr)
      add<1>(op.op, io);
    else if constexpr (!HasRows<O> || place.weights == 1)
      add<1>(op.op, io);
    else
      add<place.weights>(op.op.row(), io);
  }

 private:
  /// `rows`: parts of an example that have a weight each.
  template <std::size_t rows>
  static void add(const O& op, const MetricIo<D, float>& io) {
    using T = typename D::real;
    constexpr std::size_t size = place.shape.size() / rows, targets = place.targets / rows;
    for (std::size_t n = 0; n < io.count; ++n)
      for (std::size_t r = 0; r < rows; ++r) {
        const T* const p = io.prediction + n * place.row + place.prediction + r * size;
        const detail::HeadTargets<typename O::target_type, targets, T> target(
            io.target + n * place.target_row + place.target + r * targets);
        if constexpr (weighs)
          op.example(p, target.data(), io.state,
                     io.weight == nullptr
                         ? 1
                         : static_cast<double>(io.weight[n * place.weight_row + place.weight + r]));
        else
          op.example(p, target.data(), io.state);
      }
  }
};

}  // namespace lockstep
