/// \file
#include "lockstep/devices/cuda/ops/convolution/conv3d.hpp"

#include "support/host_cudnn.hpp"
#include "support/kernel_cache.hpp"
#include "unit/devices/cuda/compare.hpp"

#include "unit/devices/conv3d.hpp"

using lockstep::detail::cuda::AnyConvolution, lockstep::detail::cuda::ConvolutionPass;

TEST_CASE("convolutions of volumes by a cuDNN that computes on the host agree with the reference") {
  const OwnKernelCache cache;
  HostGpu gpu;
  const HostCudnn cudnn;
  for (const auto& op :
       {Conv3D<4, 3>::op(shape(4, 5, 3, 2)),
        Conv3D<6, kernel(2, 3, 1), same, strides(1, 2, 3), groups(3)>::op(shape(3, 5, 4, 9)),
        Conv3D<3, 2, dilation(2, 1, 3), no_bias>::op(shape(4, 3, 5, 1))}) {
    INFO(describe(op));
    const Numbers n = numbers(op, op.in.size(), op.weights(), 3);
    const auto expected = run<Reference<double>>(op, 3, n);
    const std::size_t before = cudnn.runs;
    const auto result = run<Cuda>(op, 3, n, Cuda{0, {.deterministic = true}});
    CHECK(cudnn.runs - before == 3);
    CHECK(relative_error(result.y, expected.y) < tolerance);
    CHECK(relative_error(result.dx, expected.dx) < tolerance);
    CHECK(relative_error(result.dw, expected.dw) < tolerance);
  }
}

TEST_CASE("a volume of one slice and a kernel of one slice are an image") {
  const AnyConvolution image(Conv2D<4, kernel(3, 2), same, strides(2, 1)>::op(shape(6, 5, 3))),
      slice(Conv3D<4, kernel(1, 3, 2), same, strides(1, 2, 1)>::op(shape(1, 6, 5, 3))),
      volume(Conv3D<4, kernel(1, 3, 2), same, strides(1, 2, 1)>::op(shape(2, 6, 5, 3)));
  const auto describe = [](const AnyConvolution& op) {
    return detail::cuda::describe_convolution(op, 7, ConvolutionPass::forward, ", ", "float32");
  };
  CHECK(describe(image) ==
        "a convolution (7 x (6, 5, 3) -> (3, 5, 4), kernel 3x2, strides 2x1, dilation 1x1, padding "
        "0x0, float32)");
  CHECK(describe(slice) == describe(image));
  CHECK(describe(volume) ==
        "a convolution (7 x (2, 6, 5, 3) -> (2, 3, 5, 4), kernel 1x3x2, strides 1x2x1, dilation "
        "1x1x1, padding 0x0x0, float32)");
}
