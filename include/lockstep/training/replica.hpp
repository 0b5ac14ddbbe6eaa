/// \file
/// One replica's share of a training step. Invariants: all replicas make the same calls in the same
/// order, also with no example; after `update` all hold the same weights.
#pragma once

#include <array>
#include <cstddef>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/concepts/loss.hpp"
#include "lockstep/concepts/metric.hpp"
#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/model/engine.hpp"
#include "lockstep/training/parameters.hpp"

namespace lockstep::detail {

/// The part of a batch that one replica computes, and its place in the whole.
template <class T, class Target>
struct Share {
  const T* x = nullptr;
  const Target* y = nullptr;
  std::size_t count = 0, global_count = 0;
  std::uint64_t pass = 0, first_ordinal = 0;
};

template <class Net, class D, class L, class O, class... Ms>
class Replica {
 public:
  using T = typename D::real;
  using Context = typename D::Context;
  using Target = target_as<typename L::target_type, T>;
  static constexpr std::size_t sum_count = (1 + ... + Ms::state_size);
  /// The loss, summed over examples, then each metric's state.
  using Sums = std::array<double, sum_count>;

  Replica(Context& context, std::size_t slots)
      : context_(&context), engine_(context), sums_(context, sum_count), penalty_(context, 1) {
    for (std::size_t i = 0; i < slots; ++i) slots_.emplace_back(context, Net::graph.weights);
  }

  /// Forward, loss, metrics, backward, exchange. Afterwards `sums()` is of the whole global batch
  /// and the gradients are its gradients, without penalties.
  void gradients_of(const Share<T, Target>& share, std::uint64_t seed, std::uint64_t step,
                    const CollectiveRef& group, const L& loss, const std::tuple<Ms...>& metrics) {
    const StepContext context{
        true, seed, share.pass, step, share.first_ordinal, share.count, share.global_count, group};
    engine_.prepare(share.count);
    const T* const x = feed(share);
    const T* const y = engine_.forward(x, context);
    score(y, share, engine_.output_gradient(), loss, metrics);
    engine_.backward(x, context, [&](const Bucket& b) {
      group.all_reduce(engine_.gradients().data() + b.begin, b.end - b.begin);
    });
    exchange_sums(group);
  }

  /// Forward, loss, metrics, exchange of the sums.
  void test(const Share<T, Target>& share, std::uint64_t seed, const CollectiveRef& group,
            const L& loss, const std::tuple<Ms...>& metrics) {
    const T* const y = infer(share, seed, group);
    score(y, share, nullptr, loss, metrics);
    exchange_sums(group);
  }

  /// Writes the outputs for the share's examples to `out` on the host.
  void predict_to(T* out, const Share<T, Target>& share, std::uint64_t seed,
                  const CollectiveRef& group) {
    const T* const y = infer(share, seed, group);
    context_->download(reinterpret_cast<std::byte*>(out), reinterpret_cast<const std::byte*>(y),
                       share.count * Net::output_shape.size() * sizeof(T));
    context_->synchronize();
  }

  /// One pass of the optimizer over the flat buffers; `step` counts from 1.
  void update(const O& optimizer, double rate, std::uint64_t step) {
    const auto op = optimizer.op(rate, step);
    for (const PenaltySegment& s : segments) {
      UpdateIo<D> io{*context_,
                     s.end - s.begin,
                     engine_.weights().data() + s.begin,
                     engine_.gradients().data() + s.begin,
                     {},
                     s.penalty};
      for (std::size_t i = 0; i < slots_.size(); ++i) io.slot[i] = slots_[i].data() + s.begin;
      Kernel<std::remove_cvref_t<decltype(op)>, D>::update(op, io);
    }
  }

  /// Sum of all penalties of the weights as they are.
  double penalty() {
    if constexpr (has_penalty) {
      context_->clear(reinterpret_cast<std::byte*>(penalty_.data()), sizeof(double));
      for (const PenaltySegment& s : segments)
        if (s.penalty)
          Kernel<Penalty, D>::run(s.penalty,
                                  PenaltyIo<D>{*context_, engine_.weights().data() + s.begin,
                                               s.end - s.begin, penalty_.data()});
      double value = 0;
      penalty_.download(&value);
      context_->synchronize();
      return value;
    } else {
      return 0;
    }
  }

  Engine<Net, D>& engine() { return engine_; }
  const Sums& sums() const { return host_sums_; }
  const std::vector<Buffer<Context, T>>& slots() const { return slots_; }

 private:
  static constexpr auto segments = penalty_segments<Net>();
  static constexpr bool has_penalty = [] {
    for (const PenaltySegment& s : segments)
      if (s.penalty) return true;
    return false;
  }();

  const T* feed(const Share<T, Target>& share) {
    return context_->feed(0, share.x, share.count * Net::input_shape.size());
  }

  const T* infer(const Share<T, Target>& share, std::uint64_t seed, const CollectiveRef& group) {
    engine_.prepare(share.count);
    return engine_.forward(feed(share), StepContext{false, seed, share.pass, 0, share.first_ordinal,
                                                    share.count, share.global_count, group});
  }

  /// Loss and metrics of the outputs y into sums_; the loss' gradient if wanted.
  void score(const T* y, const Share<T, Target>& share, T* gradient, const L& loss,
             const std::tuple<Ms...>& metrics) {
    const Target* const target =
        context_->feed(1, share.y, share.count * L::target_shape(Net::output_shape).size());
    context_->clear(reinterpret_cast<std::byte*>(sums_.data()), sums_.bytes());
    const auto loss_op = loss.op(Net::output_shape);
    Kernel<std::remove_cvref_t<decltype(loss_op)>, D>::run(
        loss_op, LossIo<D, typename L::target_type>{*context_, share.count, y, target, gradient,
                                                    1.0 / static_cast<double>(share.global_count),
                                                    sums_.data()});
    std::size_t at = 1;
    const auto run_metric = [&](const auto& metric) {
      const auto op = metric.template op<typename L::target_type>(Net::output_shape);
      Kernel<std::remove_cvref_t<decltype(op)>, D>::run(
          op, MetricIo<D, typename L::target_type>{*context_, share.count, y, target,
                                                   sums_.data() + at});
      at += std::remove_cvref_t<decltype(metric)>::state_size;
    };
    std::apply([&](const auto&... metric) { (run_metric(metric), ...); }, metrics);
  }

  void exchange_sums(const CollectiveRef& group) {
    group.all_reduce(sums_.data(), sum_count);
    sums_.download(host_sums_.data());
    context_->synchronize();
  }

  Context* context_;
  Engine<Net, D> engine_;
  std::vector<Buffer<Context, T>> slots_;
  Buffer<Context, double> sums_, penalty_;
  Sums host_sums_{};
};

}  // namespace lockstep::detail
