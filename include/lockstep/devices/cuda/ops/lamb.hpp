/// \file
/// Lamb on a GPU (You et al., arXiv:1904.00962). Invariants: norms are summed in double, in an
/// order that depends only on the size; the direction is computed twice rather than stored. Two
/// launches per parameter; the SumWorkspace carries the norms from the first to the second.
///
///     r = m / (sqrt(v) + epsilon), bias-corrected        w -= rate * |w| / |r| * r
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/devices/cuda/passes/adjust.hpp"
#include "lockstep/optimizers/lamb.hpp"

namespace lockstep {

namespace detail::cuda {

/// A kernel argument; laid out as `Numbers` in the text.
struct LambNumbers {
  double rate;
  float of_m, root, rest_1, rest_2, epsilon;
};

inline constexpr Source lamb_source{"lamb", R"cuda(
struct Adjust {
  float l1, l2, decay, scale, limit;
  int adjusts;
};
struct Numbers {
  double rate;
  float of_m, root, rest_1, rest_2, epsilon;
};
// r of the formula above.
__device__ float direction(const Numbers& lamb, float m, float v) {
  return lamb.of_m * m / (sqrtf(v) * lamb.root + lamb.epsilon);
}

// Updates m and v; sums w^2 and direction^2.
KERNEL(moments)(Numbers lamb, Adjust adjust, float* w, float* g, float* m, float* v,
                Sums* workspace, i64 n) {
  double x[2] = {0, 0};
  for (i64 i = INDEX; i < n; i += STRIDE) {
    float weight = w[i], seen = g[i];
    if (adjust.l1 != 0 || adjust.l2 != 0) {
      seen += (weight > 0 ? adjust.l1 : weight < 0 ? -adjust.l1 : 0.0f) + 2 * adjust.l2 * weight;
      g[i] = seen;
    }
    if (adjust.adjusts) {
      weight -= adjust.decay * weight;
      w[i] = weight;
      seen *= adjust.scale;
      seen = seen < -adjust.limit ? -adjust.limit : seen > adjust.limit ? adjust.limit : seen;
    }
    const float first = m[i] + (seen - m[i]) * lamb.rest_1;
    const float second = v[i] + (seen * seen - v[i]) * lamb.rest_2;
    m[i] = first;
    v[i] = second;
    const double step = direction(lamb, first, second);
    x[0] += (double)weight * (double)weight;
    x[1] += step * step;
  }
  if (!grid_sum(x, workspace) || threadIdx.x != 0) return;
  workspace->total[0] = sqrt(x[0]);
  workspace->total[1] = sqrt(x[1]);
}

// w -= rate * |w| / |r| * r; the ratio is 1 if a norm is 0.
KERNEL(descend)(Numbers lamb, float* w, const float* m, const float* v, const Sums* workspace,
                i64 n) {
  const double size = workspace->total[0], length = workspace->total[1];
  const float rate = (float)(lamb.rate * (size > 0 && length > 0 ? size / length : 1.0));
  FOR_EACH(i, n) w[i] -= rate * direction(lamb, m[i], v[i]);
}
)cuda"};

}  // namespace detail::cuda

/// Two launches per parameter: moments and norms, then the step.
template <class Precision>
struct Kernel<LambOp, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  /// Updates one parameter.
  static void update(const LambOp& op, const UpdateIo<BasicCuda<Precision>>& io) {
    using detail::cuda::SumWorkspace, detail::cuda::lamb_source;
    if (io.size == 0) return;
    const detail::cuda::LambNumbers numbers{op.rate,
                                            static_cast<float>(op.of_m),
                                            static_cast<float>(op.root),
                                            static_cast<float>(1 - op.beta_1),
                                            static_cast<float>(1 - op.beta_2),
                                            static_cast<float>(op.epsilon)};
    const auto n = static_cast<std::int64_t>(io.size);
    const CUdeviceptr workspace = io.device.template handle<SumWorkspace>().get();
    io.device.launch(io.device.kernel(lamb_source, "moments", {}), SumWorkspace::grid(io.size),
                     numbers, detail::cuda::adjust_of(io), io.w, io.g, io.slot[0], io.slot[1],
                     workspace, n);
    io.device.launch(io.device.kernel(lamb_source, "descend", {}),
                     detail::cuda::Grid::over(io.size), numbers, io.w, io.slot[0], io.slot[1],
                     workspace, n);
  }
};

static_assert(HasKernel<LambOp, Cuda>);

}  // namespace lockstep
