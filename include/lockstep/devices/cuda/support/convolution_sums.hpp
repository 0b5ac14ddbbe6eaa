/// \file
/// Forward of a convolution that also sums up its result, for the normalization behind it.
/// Invariants: cuDNN does it, in mixed precision, while it stores the result; only where that was
/// measured to be faster than the plain pass and the normalization's own reading of it, or, if two
/// runs must give the same bits, where it has an engine for it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/devices/cuda/ops/batch_normalization.hpp"
#include "lockstep/devices/cuda/support/convolution_call.hpp"
#include "lockstep/devices/cuda/support/convolution_pass.hpp"

namespace lockstep::detail::cuda {

/// cuDNN adds in float, which loses the digits by which the squared mean is above the variance. In
/// mixed precision rounding has lost nearly as many before; in float32 none. See docs/gpu.md.
template <class Precision>
inline constexpr bool may_sum_in_float = sizeof(typename Precision::activation) == 2;

/// The pass at one batch size, or nothing.
template <class Precision>
class ConvolutionSums {
 public:
  using A = typename Precision::activation;

  ConvolutionSums() = default;
  /// `plain`: forward without sums.
  [[gnu::cold]] ConvolutionSums(const Conv2DOp& op, CudaContext& context, std::size_t count,
                                const ConvolutionStep<Precision>& plain) {
    auto& library = context.handle<CudnnAccess>();
    if (count == 0 || library.handle() == nullptr) return;
    auto& winners = context.handle<Winners>();
    const std::string work = text(
        {describe_convolution(op, count, ConvolutionPass::forward,
                              op.bias ? ", bias, sums of the result, " : ", sums of the result, ",
                              Precision::name),
         ", cuDNN ", library.version()});
    call_.handle = library.handle();
    filters_ = static_cast<std::size_t>(op.filters);
    if (const auto known = winners.find(context, work)) {
      if (*known == plain_name) return;
      call_.plan = context.handle<SharedPlans>().find(call_.handle, *known);
    }
    if (call_.plan == nullptr) choose(op, context, count, plain, work);
    if (call_.plan != nullptr) set_order(op, context);
  }

  /// Whether it is there.
  explicit operator bool() const { return call_.plan != nullptr; }
  std::size_t scratch_bytes() const { return call_.plan == nullptr ? 0 : call_.workspace(); }

  /// y = x * w; its sums as Io's y_sums, with the bias, or zeros if it is null, as what y lacks.
  /// Weights are brought to `packed`.
  void forward(CudaContext& context, const A* x, const float* w, const float* bias, A* y,
               float* sums, std::byte* scratch, std::byte* packed) const {
    forward_by(call_, context, x, w, bias, y, sums, scratch, packed);
  }

 private:
  void forward_by(const ConvolutionCall& call, CudaContext& context, const A* x, const float* w,
                  const float* bias, A* y, float* sums, std::byte* scratch,
                  std::byte* packed) const {
    order_.pack(context, w, bias, packed, true, sums + 2 * filters_);
    call(context, {.x = x,
                   .w = order_.weights(packed),
                   .y = y,
                   .sums = sums,
                   .squares = sums + filters_,
                   .workspace = scratch});
  }

  /// As Winners know the plain pass with a reading of its result. The others' names are the plans'
  /// JSON.
  static constexpr const char* plain_name = "the plain pass";

  [[gnu::cold]] void set_order(const Conv2DOp& op, CudaContext& context) {
    order_ = {context, static_cast<std::int64_t>(op.kernel_size()) / op.filters, op.filters};
  }

  /// Sets the plan that is faster than all others, and than the plain pass with a reading of its
  /// result; none if that one is.
  [[gnu::cold]] void choose(const Conv2DOp& op, CudaContext& context, std::size_t count,
                            const ConvolutionStep<Precision>& plain, const std::string& work) {
    CudnnRules rules = cudnn_rules<Precision>;
    rules.deterministic = context.options().deterministic;
    std::string why;
    const auto plans = offered_plans(call_.handle, op, count, ConvolutionPass::forward, rules,
                                     ConvolutionTail::sums, why);
    auto& winners = context.handle<Winners>();
    if (plans.empty()) {
      // Asking cuDNN again takes up to 0.2 s per layer. A refusal is not kept, as its reason may be
      // transient.
      if (why.empty()) winners.keep(context, work, plain_name);
      return;
    }
    set_order(op, context);
    using Statistics = BatchNormalizationKernel<Precision, NormalizationTail::none>;
    const BatchNormalizationOp norm{.in = op.out()};
    const typename Statistics::Prepared rows(norm, count);
    std::size_t scratch = plain.scratch_bytes();
    for (const auto& p : plans) scratch = std::max(scratch, static_cast<std::size_t>(p->workspace));
    std::optional<TuningRoom<A>> pass;
    std::optional<TuningMemory> sums, once, state, parts;
    const auto run = [&](std::size_t i) {
      if (!pass) {
        const std::size_t each = count * sizeof(A), numbers = 3 * filters_ * sizeof(float);
        pass.emplace(context,
                     TuningSizes{each * op.in.size(), op.kernel_size() * sizeof(float) + numbers,
                                 each * op.out().size(), scratch, order_.bytes()});
        sums.emplace(context, numbers);
        state.emplace(context, numbers);
        state->randomize<float>();
        once.emplace(context, Statistics::saved_once(norm));
        parts.emplace(context, rows.scratch_bytes());
      }
      A *const x = pass->x.template as<A>(), *const y = pass->y.template as<A>();
      float* const w = pass->w.template as<float>();
      const float* const bias = op.bias ? w + op.kernel_size() : nullptr;
      std::byte* const room = pass->scratch.template as<std::byte>();
      std::byte* const packed = pass->packed.template as<std::byte>();
      if (i < plans.size()) {
        forward_by({call_.handle, plans[i]}, context, x, w, bias, y, sums->as<float>(), room,
                   packed);
      } else {
        plain.forward(context, x, w, bias, y, room, {packed});
        Statistics::read_rows(norm, context, rows, y, once->as<double>(), state->as<float>(),
                              parts->as<std::byte>());
      }
    };
    const auto name = [&](std::size_t i) {
      return i == plans.size() ? plain_name : context.handle<SharedPlans>().add(plans[i]);
    };
    const std::size_t i = winners.measure(context, work, plans.size() + 1, run, name, plans.size());
    if (i < plans.size()) call_.plan = plans[i];
  }

  std::size_t filters_ = 0;
  ConvolutionCall call_;
  WeightOrder<Precision> order_;
};

}  // namespace lockstep::detail::cuda
