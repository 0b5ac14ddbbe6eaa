/// \file
/// Conv2D on a GPU.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/kernels/column_sums.hpp"
#include "lockstep/devices/cuda/kernels/convolution_text.hpp"
#include "lockstep/devices/cuda/kernels/matrix_product.hpp"
#include "lockstep/layers/conv2d.hpp"

namespace lockstep {
namespace detail::cuda {

/// The passes of a convolution at one batch size, as products of matrices.
template <class Precision>
class ConvolutionProducts {
 public:
  using A = typename Precision::activation;

  ConvolutionProducts() = default;
  [[gnu::cold]] ConvolutionProducts(const Conv2DOp& op, CudaContext& context, std::size_t count) {
    const auto n = static_cast<std::int64_t>(count);
    if (n == 0) return;
    const Shape out = op.out();
    const std::int64_t pixels = n * out[0] * out[1], in_pixels = n * op.in[0] * op.in[1],
                       taps = std::int64_t{op.kernel.height} * op.kernel.width;
    y_ = product(op, context, convolution_forward_text, {pixels, op.filters, taps * op.channels()},
                 op.channels() >= 8, false, false);
    dx_ = product(op, context, convolution_dx_text, {in_pixels, op.channels(), taps * op.filters},
                  true, true, false);
    dw_ = product(op, context, convolution_dw_text, {taps * op.channels(), op.filters, pixels},
                  false, false, true);
  }

  std::size_t scratch_bytes() const {
    return std::max({y_.scratch_bytes(), dx_.scratch_bytes(), dw_.scratch_bytes()});
  }

  /// `bias` may be null.
  void forward(CudaContext& context, const A* x, const float* w, const float* bias, A* y,
               std::byte* scratch) const {
    y_(context, x, w, bias, y, scratch);
  }
  void backward_data(CudaContext& context, const A* dy, const float* w, const float* bias, A* dx,
                     std::byte* scratch) const {
    dx_(context, dy, w, bias, dx, scratch);
  }
  void backward_weights(CudaContext& context, const A* x, const A* dy, float* dw,
                        std::byte* scratch) const {
    dw_(context, x, dy, nullptr, dw, scratch);
  }

 private:
  static MatrixProduct<Precision> product(const Conv2DOp& op, CudaContext& context,
                                          const char* functions, const ProductSizes& sizes,
                                          bool left_along, bool right_along, bool of_weights) {
    std::vector<Define> defines = convolution_defines(op);
    defines.emplace_back("LEFT_ALONG", left_along);
    defines.emplace_back("RIGHT_ALONG", right_along);
    return {context, Source{"convolution", matrix_product_text, functions}, std::move(defines),
            sizes, of_weights};
  }

  MatrixProduct<Precision> y_, dx_, dw_;
};

/// The passes of Conv2D at one batch size.
template <class Precision>
class ConvolutionCalls {
 public:
  using D = BasicCuda<Precision>;

  ConvolutionCalls() = default;
  [[gnu::cold]] ConvolutionCalls(const Conv2DOp& op, CudaContext& context, std::size_t count)
      : weights_(op.kernel_size() + (op.bias ? static_cast<std::size_t>(op.filters) : 0)),
        products_(op, context, count) {
    if (op.bias && count > 0)
      db_ = {context, static_cast<std::int64_t>(count * op.out().size()) / op.filters, op.filters};
  }

  std::size_t scratch_bytes() const {
    return std::max(products_.scratch_bytes(), db_.scratch_bytes());
  }

  void forward(const Conv2DOp& op, const Io<D>& io) const {
    products_.forward(io.device, io.x, io.w, op.bias ? io.w + op.kernel_size() : nullptr, io.y,
                      io.scratch);
  }
  void backward(const Conv2DOp& op, const Io<D>& io) const {
    if (io.count == 0)
      return io.device.clear(reinterpret_cast<std::byte*>(io.dw), weights_ * sizeof(float));
    products_.backward_weights(io.device, io.x, io.dy, io.dw, io.scratch);
    if (op.bias) db_(io.device, io.dy, io.dw + op.kernel_size(), io.scratch);
    if (io.dx != nullptr)
      products_.backward_data(io.device, io.dy, io.w, nullptr, io.dx, io.scratch);
  }

 private:
  std::size_t weights_ = 0;
  ConvolutionProducts<Precision> products_;
  ColumnSums<Precision> db_;
};

}  // namespace detail::cuda

template <class Precision>
struct Kernel<Conv2DOp, BasicCuda<Precision>> : KernelTraits {
  using D = BasicCuda<Precision>;
  using Prepared = detail::cuda::ConvolutionCalls<Precision>;
  static constexpr bool keeps_x = true;

  static Prepared prepare(const Conv2DOp& op, CudaContext& context, std::size_t count) {
    return Prepared(op, context, count);
  }
  [[gnu::noinline]] static void forward(const Conv2DOp& op, const Io<D>& io, Prepared& prepared) {
    prepared.forward(op, io);
  }
  [[gnu::noinline]] static void backward(const Conv2DOp& op, const Io<D>& io, Prepared& prepared) {
    prepared.backward(op, io);
  }
};

static_assert(HasKernel<Conv2DOp, Cuda>);

}  // namespace lockstep
