/// \file
/// PReLU on a GPU: one element per thread, and for the gradient of alpha one alpha per column of
/// threads. Invariants: an element's alpha is found from its place; the order of the sums depends
/// only on the sizes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/column_sums.hpp"
#include "lockstep/layers/activations/prelu.hpp"

namespace lockstep {
namespace detail::cuda {

/// E0 to E3: the input's extents. S0 to S3: distances in alpha, 0 along shared axes. SIZE: elements
/// of an example, ALPHAS of them with an alpha of their own. The grid of dw is groups of WIDTH
/// alphas x ranges of the elements that share one.
inline constexpr Source prelu_source{"prelu", R"cuda(
__device__ inline int alpha_of(int i) {
  return i % E3 * S3 + i / E3 % E2 * S2 + i / (E3 * E2) % E1 * S1 + i / (E3 * E2 * E1) * S0;
}
KERNEL(forward)(const A* x, const float* __restrict__ w, A* y, i64 n) {
  FOR_EACH(i, n) {
    const float v = get(x[i]);
    y[i] = put<A>(v > 0 ? v : w[alpha_of((int)(i % SIZE))] * v);
  }
}
// 0 at 0, and NaN at NaN.
KERNEL(backward)(const A* x, const float* __restrict__ w, const A* dy, A* dx, i64 n) {
  FOR_EACH(i, n) {
    const float v = get(x[i]);
    dx[i] = put<A>(get(dy[i]) * (v > 0 ? 1.0f : v < 0 ? w[alpha_of((int)(i % SIZE))] : 0 * v));
  }
}

// The places within an example along the axes with steps, and along the shared ones.
#define ALONG(rest, extent, step, stride, at)     \
  if ((step) != 0) {                              \
    at += rest % (extent) * (stride);             \
    rest /= (extent);                             \
  }
#define ACROSS(rest, extent, step, stride, at) ALONG(rest, extent, (step) == 0, stride, at)
__device__ inline int first_of(int k) {
  int at = 0;
  ALONG(k, E3, S3, 1, at)
  ALONG(k, E2, S2, E3, at)
  ALONG(k, E1, S1, E3 * E2, at)
  ALONG(k, E0, S0, E3 * E2 * E1, at)
  return at;
}
__device__ inline int shared_place(int k) {
  int at = 0;
  ACROSS(k, E3, S3, 1, at)
  ACROSS(k, E2, S2, E3, at)
  ACROSS(k, E1, S1, E3 * E2, at)
  ACROSS(k, E0, S0, E3 * E2 * E1, at)
  return at;
}
KERNEL(sums)(const A* __restrict__ x, const A* __restrict__ dy, float* parts, i64 rows, i64 each) {
  __shared__ double part[256];
  const int t = threadIdx.x, k = blockIdx.x * WIDTH + t % WIDTH;
  const i64 begin = blockIdx.y * each, end = min(rows, begin + each);
  double sum = 0;
  if (k < ALPHAS) {
    const int first = first_of(k);
    for (i64 m = begin + t / WIDTH; m < end; m += 256 / WIDTH) {
      const i64 i = m / (SIZE / ALPHAS) * SIZE + first + shared_place((int)(m % (SIZE / ALPHAS)));
      const float v = get(x[i]);
      if (!(v > 0)) sum += (double)v * get(dy[i]);
    }
  }
  part[t] = sum;
  __syncthreads();
  if (t >= WIDTH || k >= ALPHAS) return;
  for (int i = t + WIDTH; i < 256; i += WIDTH) sum += part[i];
  parts[(i64)blockIdx.y * ALPHAS + k] = (float)sum;
}
)cuda"};

/// The passes of PReLU at one batch size.
template <class Precision>
class PReLUCalls {
 public:
  using D = BasicCuda<Precision>;

  PReLUCalls(const PReLUOp& op, CudaContext& context, std::size_t count)
      : width_(block_width(static_cast<std::int64_t>(op.weights()))) {
    if (count == 0) return;
    rows_ = static_cast<std::int64_t>(count * op.in.size() / op.weights());
    cut_ = RowParts::of(rows_, 256 / width_);
    std::vector<Define> defines{{"SIZE", op.in.size()},
                                {"ALPHAS", op.weights()},
                                {"WIDTH", width_},
                                {"ACTIVATION", activation_code<Precision>}};
    // The axes of an example are the last ones of four.
    static constexpr std::array<std::array<const char*, 2>, 4> names{
        {{"E0", "S0"}, {"E1", "S1"}, {"E2", "S2"}, {"E3", "S3"}}};
    for (int i = 0; i < 4; ++i) {
      const int axis = i - (4 - op.in.rank);
      const auto& name = names[static_cast<std::size_t>(i)];
      defines.emplace_back(name[0], axis < 0 ? 1 : op.in[axis]);
      defines.emplace_back(name[1], axis < 0 ? 0 : static_cast<int>(op.step(axis)));
    }
    forward_ = context.kernel(prelu_source, "forward", defines);
    backward_ = context.kernel(prelu_source, "backward", defines);
    sums_ = context.kernel(prelu_source, "sums", defines);
    add_ = context.kernel(add_parts_source, "add_parts", {});
    scratch_ = cut_.parts == 1 ? 0 : cut_.parts * op.weights() * sizeof(float);
  }

  std::size_t scratch_bytes() const { return scratch_; }

  void forward(const PReLUOp& op, const Io<D>& io) const {
    const std::size_t n = io.step.count * op.in.size();
    if (n == 0) return;
    io.device.launch(forward_, Grid::over(n), io.x[0], io.w, io.y, static_cast<std::int64_t>(n));
  }
  /// dw (two launches if the elements are divided), dx. Without examples dw is cleared.
  void backward(const PReLUOp& op, const Io<D>& io) const {
    if (io.step.count == 0) {
      if (io.dw != nullptr)
        io.device.clear(reinterpret_cast<std::byte*>(io.dw), op.weights() * sizeof(float));
      return;
    }
    if (io.dw != nullptr) gradient_of_alpha(op, io);
    if (io.dx[0] == nullptr) return;
    const std::size_t n = io.step.count * op.in.size();
    io.device.launch(backward_, Grid::over(n), io.x[0], io.w, static_cast<const A*>(io.dy),
                     io.dx[0], static_cast<std::int64_t>(n));
  }

 private:
  using A = typename Precision::activation;

  void gradient_of_alpha(const PReLUOp& op, const Io<D>& io) const {
    float* const parts = cut_.parts == 1 ? io.dw : reinterpret_cast<float*>(io.scratch);
    const auto width = static_cast<unsigned>(width_), alphas = static_cast<unsigned>(op.weights());
    io.device.launch(sums_, Grid{{(alphas + width - 1) / width, cut_.parts, 1}, {256, 1, 1}},
                     io.x[0], static_cast<const A*>(io.dy), parts, rows_, cut_.each);
    if (cut_.parts > 1)
      io.device.launch(add_, Grid::over(op.weights()), static_cast<const float*>(parts), io.dw,
                       static_cast<std::int64_t>(op.weights()), static_cast<int>(cut_.parts));
  }

  int width_ = 1;
  std::int64_t rows_ = 0;
  std::size_t scratch_ = 0;
  RowParts cut_;
  CUfunction forward_ = nullptr, backward_ = nullptr, sums_ = nullptr, add_ = nullptr;
};

}  // namespace detail::cuda

/// Keeps x for backward.
template <class Precision>
struct Kernel<PReLUOp, BasicCuda<Precision>>
    : PreparedKernel<PReLUOp, BasicCuda<Precision>, detail::cuda::PReLUCalls<Precision>> {
  using library_kernel = Kernel;
  static constexpr bool keeps_x = true, skips_dw = true;
};

static_assert(HasKernel<PReLUOp, Cuda>);

}  // namespace lockstep
