/// \file
/// All kernels of CpuBFloat16, compared with Reference<double>.
#include <algorithm>

#include "conv2d_ops.hpp"

#include "unit/devices/bfloat16.hpp"
#include "unit/devices/synchronized.hpp"

using namespace lockstep;
using namespace testing;

namespace {

constexpr int shapes = 16;

void check_convolution(const Conv2DOp& op, std::size_t count) {
  INFO(describe(op) << ", examples " << count);
  check_in_bfloat16(op, count, numbers(op, op.in.size(), weights_of(op), count), op.kernel_size());
}

}  // namespace

TEST_CASE("convolutions in bfloat16 agree with the reference, and sum their gradients in float") {
  need_bfloat16();
  Philox g(1);
  for (int i = 0; i < generated_shapes; ++i)
    check_convolution(generated_convolution(g), static_cast<std::size_t>(between(g, 1, 5)));
}

TEST_CASE("the convolutions of ResNet in bfloat16 agree with the reference") {
  need_bfloat16();
  for (const auto& op :
       {Conv2D<16, 3, same>::op(shape(32, 32, 3)), Conv2D<16, 3, same>::op(shape(32, 32, 16)),
        Conv2D<16, 1, same>::op(shape(32, 32, 16)),
        Conv2D<32, 3, same, strides(2)>::op(shape(32, 32, 16)),
        Conv2D<32, 1, same, strides(2)>::op(shape(32, 32, 16)),
        Conv2D<64, 3, same, strides(2)>::op(shape(16, 16, 32)),
        Conv2D<64, 1, same, strides(2)>::op(shape(16, 16, 32)),
        Conv2D<64, 3, same>::op(shape(8, 8, 64))})
    check_convolution(op, 6);
}

TEST_CASE("grouped convolutions in bfloat16 agree with the reference") {
  need_bfloat16();
  Philox g(63);
  for (int i = 0; i < generated_shapes; ++i)
    check_convolution(generated_grouped(g), static_cast<std::size_t>(between(g, 1, 5)));
  for (const auto& op : {Conv2D<64, 3, same, groups(4)>::op(shape(9, 9, 64)),
                         Conv2D<68, 1, groups(2)>::op(shape(9, 9, 132)),
                         Conv2D<34, 3, strides(2), groups(2)>::op(shape(9, 9, 66)),
                         Conv2D<40, 3, dilation(2), groups(2)>::op(shape(9, 9, 40))})
    check_convolution(op, 3);
}

TEST_CASE("depthwise and transposed convolutions in bfloat16 agree with the reference") {
  need_bfloat16();
  Philox g(14);
  for (int i = 0; i < generated_shapes; ++i) {
    const Conv2DOp like = generated_convolution(g);
    const auto count = static_cast<std::size_t>(between(g, 1, 5));
    INFO(describe(like) << ", examples " << count);
    const auto size = [&](const auto& op) {
      return op.kernel_size() + (op.bias ? static_cast<std::size_t>(op.out().channels()) : 0);
    };
    const DepthwiseConv2DOp depthwise{like.in,       between(g, 1, 3), like.kernel, like.strides,
                                      like.dilation, like.padding,     like.bias};
    // The gradients of a pixel's copies are rounded before they are added.
    check_in_bfloat16(depthwise, count, numbers(depthwise, like.in.size(), size(depthwise), count),
                      depthwise.kernel_size(), 0, 2 * half_tolerance);
    const Conv2DTransposeOp transposed{like.out(),    like.in[0],   like.in[1],
                                       like.in[2],    like.kernel,  like.strides,
                                       like.dilation, like.padding, like.bias};
    // y is rounded before the bias is added.
    check_in_bfloat16(transposed, count,
                      numbers(transposed, transposed.in.size(), size(transposed), count),
                      transposed.kernel_size(), 0, 2 * half_tolerance);
  }
}

TEST_CASE("a convolution in bfloat16 without examples gives a weight gradient of zero") {
  need_bfloat16();
  const auto op = Conv2D<8, 3>::op(shape(5, 5, 2));
  const auto result = run(op, 0, numbers(op, op.in.size(), weights_of(op), 0), CpuBFloat16{});
  CHECK(result.dw == std::vector<float>(weights_of(op), 0.0f));
}

TEST_CASE("dense layers in bfloat16 agree with the reference, and sum their gradients in float") {
  need_bfloat16();
  Philox g(2);
  for (int i = 0; i < generated_shapes; ++i) {
    const DenseOp op{between(g, 1, 130), between(g, 1, 70), one_of(g, 0, 1) == 0, leading_axes(g)};
    const auto count = static_cast<std::size_t>(between(g, 1, 40));
    INFO(op.inputs << " -> " << op.units << (op.bias ? ", bias, " : ", ") << op.rows() << " rows");
    check_in_bfloat16(op, count, numbers(op, op.in().size(), op.weights(), count),
                      op.kernel_size());
  }
}

TEST_CASE("a ReLU after a convolution or a dense layer is also fused in bfloat16") {
  need_bfloat16();
  Philox g(3);
  for (int i = 0; i < shapes; ++i) {
    const Conv2DOp conv = generated_convolution(g);
    const DenseOp dense{between(g, 1, 70), between(g, 1, 70), true};
    const auto count = static_cast<std::size_t>(between(g, 1, 5));
    const auto relu_mask = [](auto& n, const auto& y) {
      for (std::size_t k = 0; k < n.dy.size(); ++k)
        if (!(y[k] > 0)) n.dy[k] = 0;
    };
    const auto check = [&](const auto& fused, const auto& op, std::size_t in, std::size_t weights) {
      const Numbers n = numbers(op, in, weights, count);
      const auto joined = run(fused, count, n, CpuBFloat16{.threads = 2});
      const auto plain = run(op, count, n, CpuBFloat16{.threads = 2});
      Numbers masked = n;
      masked.dy = rounded(masked.dy);
      relu_mask(masked, joined.y);
      const auto apart = run(op, count, masked, CpuBFloat16{.threads = 2});
      for (std::size_t k = 0; k < joined.y.size(); ++k)
        REQUIRE(joined.y[k] == std::max(plain.y[k], 0.0f));
      CHECK(joined.dx == apart.dx);
      CHECK(joined.dw == apart.dw);
    };
    INFO(describe(conv));
    check(ConvReLUOp{conv, ReLU::op(conv.out())}, conv, conv.in.size(), weights_of(conv));
    check(DenseReLUOp{dense, ReLU::op(dense.out())}, dense, dense.in().size(),
          dense.kernel_size() + static_cast<std::size_t>(dense.units));
  }
}

TEST_CASE("synchronized normalization in bfloat16 over shares equals that of the whole batch") {
  need_bfloat16();
  shares_are_one_batch<CpuBFloat16>(1e-2, CpuBFloat16{.threads = 1});
}

TEST_CASE("the other layers in bfloat16 agree with the reference") {
  need_bfloat16();
  Philox g(12);
  for (int i = 0; i < shapes; ++i) {
    const Shape in = shape(between(g, 1, 9), between(g, 1, 9), between(g, 1, 9));
    const auto turned = RandomRotation<factor(0.2f)>::op(in);
    const SpatialDropout2DOp spatial{.in = in, .rate = 0.3f};
    check_in_bfloat16(spatial, 3, numbers(spatial, in.size(), 0, 3));
    const GaussianNoiseOp noise{.in = in, .stddev = 0.5f};
    check_in_bfloat16(noise, 3, numbers(noise, in.size(), 0, 3));
    check_in_bfloat16(turned, 3, numbers(turned, in.size(), 0, 3));
    check_in_bfloat16(Dropout<rate(0.3f)>::op(in), 3,
                      numbers(Dropout<rate(0.3f)>::op(in), in.size(), 0, 3));
  }
}

TEST_CASE("augmentation layers in bfloat16 sum their gradients in float") {
  need_bfloat16();
  const auto check = [](const auto& op, Shape in) {
    INFO(to_string(in) << " to " << to_string(op.out()));
    check_in_bfloat16(op, 3, numbers(op, in.size(), 0, 3));
    Numbers constant_dy = numbers(op, in.size(), 0, 3);
    std::fill(constant_dy.dy.begin(), constant_dy.dy.end(), 1.0f);
    check_in_bfloat16(op, 3, constant_dy);
  };
  check(RandomCrop<32, 32>::op(shape(4, 4, 3)), shape(4, 4, 3));
  check(RandomCrop<64, 64>::op(shape(7, 7, 2)), shape(7, 7, 2));
  check(RandomCrop<224, 224>::op(shape(7, 7, 1)), shape(7, 7, 1));
  check(RandomCrop<5, 60>::op(shape(9, 3, 4)), shape(9, 3, 4));
  check(RandomRotation<factor(0.2, 0.3), fill_nearest>::op(shape(4, 90, 2)), shape(4, 90, 2));
  check(RandomTranslation<factor(0.9, 0.95), factor(0.9, 0.95), fill_nearest>::op(shape(30, 25, 2)),
        shape(30, 25, 2));
}
