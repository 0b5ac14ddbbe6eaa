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

#include "lockstep/devices/cuda/kernels/batch_normalization.hpp"
#include "lockstep/devices/cuda/kernels/convolution_call.hpp"
#include "lockstep/devices/cuda/kernels/convolution_pass.hpp"

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
    CudnnRules rules = cudnn_rules<Precision>;
    rules.deterministic = context.options().deterministic;
    std::string why;
    const auto plans = offered_plans(library.handle(), op, count, ConvolutionPass::forward, rules,
                                     ConvolutionTail::sums, why);
    if (plans.empty()) return;
    filters_ = static_cast<std::size_t>(op.filters);
    order_ = {context, static_cast<std::int64_t>(op.kernel_size()) / op.filters, op.filters};
    const std::size_t i = fastest(op, context, count, plain, plans, library);
    if (i < plans.size()) call_ = {library.handle(), plans[i]};
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

  /// The plan that is faster than all others, and than the plain pass with a reading of its result;
  /// their number if that one is.
  [[gnu::cold]] std::size_t fastest(const Conv2DOp& op, CudaContext& context, std::size_t count,
                                    const ConvolutionStep<Precision>& plain,
                                    const std::vector<std::shared_ptr<CudnnPlan>>& plans,
                                    const CudnnAccess& library) const {
    using Statistics = BatchNormalizationKernel<Precision, NormalizationTail::none>;
    const BatchNormalizationOp norm{.in = op.out()};
    const typename Statistics::Prepared rows(norm, count);
    std::size_t scratch = plain.scratch_bytes();
    for (const auto& p : plans) scratch = std::max(scratch, static_cast<std::size_t>(p->workspace));
    std::optional<TuningRoom> pass;
    std::optional<TuningMemory> sums, once, state, parts;
    const auto run = [&](std::size_t i) {
      if (!pass) {
        const std::size_t each = count * sizeof(A), numbers = 3 * filters_ * sizeof(float);
        pass.emplace(context, each * op.in.size(), op.kernel_size() * sizeof(float) + numbers,
                     each * op.out().size(), scratch, order_.bytes());
        sums.emplace(context, numbers);
        state.emplace(context, numbers);
        once.emplace(context, Statistics::saved_once(norm));
        parts.emplace(context, rows.scratch_bytes());
      }
      A *const x = pass->x.as<A>(), *const y = pass->y.as<A>();
      float* const w = pass->w.as<float>();
      const float* const bias = op.bias ? w + op.kernel_size() : nullptr;
      std::byte *const room = pass->scratch.as<std::byte>(), *const packed =
                                                                 pass->packed.as<std::byte>();
      if (i < plans.size()) {
        forward_by({library.handle(), plans[i]}, context, x, w, bias, y, sums->as<float>(), room,
                   packed);
      } else {
        plain.forward(context, x, w, bias, y, room, {packed});
        Statistics::read_rows(norm, context, rows, y, once->as<double>(), state->as<float>(),
                              parts->as<std::byte>());
      }
    };
    const std::string work = describe_convolution(
        op, count, ConvolutionPass::forward,
        op.bias ? ", bias, sums of the result, " : ", sums of the result, ", Precision::name);
    return context.handle<Winners>().choose(context, text({work, ", cuDNN ", library.version()}),
                                            plans.size() + 1, run, plans.size());
  }

  std::size_t filters_ = 0;
  ConvolutionCall call_;
  WeightOrder<Precision> order_;
};

}  // namespace lockstep::detail::cuda
