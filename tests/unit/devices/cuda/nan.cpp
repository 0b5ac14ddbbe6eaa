/// \file
/// NaN is never hidden by our kernels for GPUs that compare or clip numbers. NVIDIA's libraries
/// have other rules for the ReLU that they fuse.
#include <catch2/catch_test_macros.hpp>

#include "lockstep/cuda.hpp"
#include "support/test_gpu.hpp"
#include "unit/devices/nan.hpp"

using namespace lockstep;
using namespace testing;

namespace {
constexpr auto image = shape(6, 5, 3);

template <class L>
void check_layer() {
  check_nan_in_layer<L>(Cuda{}, image, 2, 4);
}
}  // namespace

TEST_CASE("activations, pooling and softmax propagate NaN on a GPU") {
  TestGpu gpu;
  check_layer<ReLU>();
  check_layer<ReLU6>();
  check_layer<Softmax>();
  check_layer<MaxPooling2D<>>();
  check_layer<MaxPooling2D<3, same, strides(2, 1)>>();
  check_layer<GlobalMaxPooling2D>();
  check_nan_in_layer<MaxPooling2D<>>(CudaBFloat16{}, image, 2, 4);
  NaNInputs pair{2, numbers(MaximumOp{image}, image.size(), 0, 2)};
  pair.numbers.x2 = numbers(MaximumOp{image}, image.size(), 0, 2, 2).x;
  check_nan_in(Cuda{}, MaximumOp{image}, pair, 4, MaximumOp{image});
  check_nan_in(Cuda{}, MinimumOp{image}, pair, 4, MinimumOp{image});
  const DotOp dot{shape(3, 4), shape(2, 4), {2, 2}, true};
  NaNInputs products{2, numbers(dot, dot.in.size(), 0, 2)};
  products.numbers.x2 = numbers(dot, dot.other.size(), 0, 2, 2).x;
  check_nan_in(Cuda{}, dot, products, 4, dot);
}

TEST_CASE("our fused layers propagate NaN on a GPU") {
  TestGpu gpu;
  if (gpu.host() == nullptr) SKIP("NVIDIA's libraries have other rules");
  const ReLUOp relu{image};
  NaNInputs normalized = inputs_of<BatchNormalization<>>(image, 2);
  const auto norm = BatchNormalization<>::op(image);
  check_nan_in(Cuda{}, BatchNormalizationReLUOp{norm, relu}, normalized, 4, norm, relu);
  normalized.numbers.x2 = numbers(relu, image.size(), 0, 2, 2).x;
  check_nan_in(Cuda{}, BatchNormalizationAddReLUOp{norm, {image}, relu}, normalized, 4, norm,
               AddOp{image}, relu);
  const auto dense = Dense<5>::op(shape(9));
  const ReLUOp after_dense{dense.out()};
  check_nan_in(Cuda{}, DenseReLUOp{dense, after_dense}, inputs_of<Dense<5>>(shape(9), 2), 4, dense,
               after_dense);
  const auto conv = Conv2D<8, 3>::op(image);
  const ReLUOp after_conv{conv.out()};
  NaNInputs in = inputs_of<Conv2D<8, 3>>(image, 2);
  check_nan_in(Cuda{}, ConvReLUOp{conv, after_conv}, in, 4, conv, after_conv);
  const auto pool = MaxPooling2D<>::op(conv.out());
  in.numbers.dy = numbers(pool, 1, 0, 2).dy;
  in.want_dx = false;
  check_nan_in(Cuda{}, ConvReLUPoolOp{conv, after_conv, pool}, in, 8, conv, after_conv, pool);
}

TEST_CASE("losses with comparisons propagate NaN on a GPU") {
  TestGpu gpu;
  check_nan_in_loss(MeanAbsoluteError{}, Cuda{});
  check_nan_in_loss(Huber{}, Cuda{});
  check_nan_in_loss(Hinge{}, Cuda{});
}

TEST_CASE("all losses propagate NaN on a GPU", "[.slow]") {
  TestGpu gpu;
  check_nan_in_losses(Cuda{});
}
