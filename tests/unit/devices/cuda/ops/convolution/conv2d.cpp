/// \file
#include "lockstep/devices/cuda/ops/convolution/conv2d.hpp"

#include "support/host_cudnn.hpp"
#include "support/kernel_cache.hpp"
#include "unit/devices/cuda/compare.hpp"

#include "unit/devices/conv2d.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("convolutions of the models' kinds agree with the reference") {
  for (const auto& op :
       {Conv2D<32, 3>::op(shape(10, 10, 1)), Conv2D<16, 3, same>::op(shape(8, 8, 3)),
        Conv2D<70, 1, same, strides(2)>::op(shape(8, 8, 40)),
        Conv2D<33, 3, same, strides(2)>::op(shape(8, 8, 17)),
        Conv2D<64, 3, same, groups(32)>::op(shape(6, 6, 64))}) {
    INFO(describe(op));
    check_against_reference(op, 3, numbers(op, op.in.size(), weights_of(op), 3));
  }
}

TEST_CASE("grouped convolutions by a cuDNN that computes on the host agree with the reference") {
  const OwnKernelCache cache;
  HostGpu gpu;
  const HostCudnn cudnn;
  for (const auto& op : {Conv2D<6, 3, same, groups(3)>::op(shape(5, 4, 9)),
                         Conv2D<4, 2, strides(2), groups(4), no_bias>::op(shape(7, 6, 4))}) {
    INFO(describe(op));
    const Numbers n = numbers(op, op.in.size(), weights_of(op), 3);
    const auto expected = run<Reference<double>>(op, 3, n);
    const std::size_t before = cudnn.runs;
    const auto result = run<Cuda>(op, 3, n, Cuda{0, {.deterministic = true}});
    CHECK(cudnn.runs - before == 3);
    CHECK(relative_error(result.y, expected.y) < tolerance);
    CHECK(relative_error(result.dx, expected.dx) < tolerance);
    CHECK(relative_error(result.dw, expected.dw) < tolerance);
  }
}
