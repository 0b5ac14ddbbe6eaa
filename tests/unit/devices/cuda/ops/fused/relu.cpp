/// \file
/// Conv2D and Dense fused with a ReLU, compared with the two separate ops.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/layers/layers.hpp"
#include "lockstep/training/report/summary.hpp"
#include "support/convolutions.hpp"
#include "unit/devices/cuda/compare.hpp"

using namespace lockstep;
using namespace testing;

namespace {

/// The two ops as a plan without fusion runs them, in double.
template <class First>
LayerResult<double> unfused(const First& first, const ReLUOp& relu, std::size_t count, Numbers n,
                            bool want_dx) {
  using D = Reference<double>;
  const auto dy = n.dy;
  auto result = run<D>(first, count, n, {}, want_dx);
  const auto activation = run<D>(relu, count, Numbers{as<float>(result.y), {}, dy, {}});
  // The mask comes from y in double: a sum near 0 may have another sign in float.
  for (std::size_t i = 0; i < dy.size(); ++i) n.dy[i] = result.y[i] > 0 ? dy[i] : 0.0f;
  const auto back = run<D>(first, count, n, {}, want_dx);
  result.dx = back.dx;
  result.dw = back.dw;
  result.y = activation.y;
  return result;
}

/// `rounded_weights`: the weights that a kernel in mixed precision rounds itself.
template <class D, class Fused, class First>
void agrees_with_the_ops(const Fused& op, const First& first, std::size_t count, Numbers n,
                         std::size_t rounded_weights, double allowed, double allowed_dw) {
  using A = ActivationOf<D>;
  TestGpu gpu;
  n.x = rounded<A>(n.x);
  n.dy = rounded<A>(n.dy);
  // NVIDIA's libraries also round the bias, our own kernels do not; near 0 it decides the mask.
  if constexpr (sizeof(A) == 2)
    for (std::size_t i = rounded_weights; i < n.w.size(); ++i) n.w[i] = A(n.w[i]);
  Numbers reference = n;
  if constexpr (sizeof(A) == 2)
    for (std::size_t i = 0; i < rounded_weights; ++i) reference.w[i] = A(n.w[i]);
  for (const bool want_dx : {true, false}) {
    INFO("examples " << count << ", dx wanted " << want_dx);
    const auto expected = unfused(first, op.relu, count, reference, want_dx);
    const auto result = run<D>(op, count, n, {}, want_dx);
    CHECK(relative_error(result.y, expected.y) < allowed);
    CHECK(relative_error(result.dx, expected.dx) < allowed);
    CHECK(relative_error(result.dw, expected.dw) < allowed_dw);
  }
}

template <class D>
void convolutions_agree(std::uint64_t seed, double allowed, double allowed_dw) {
  Philox g(seed);
  for (int i = 0; i < generated_shapes; ++i) {
    const Conv2DOp op = generated_convolution(g);
    INFO(describe(op));
    const auto count = static_cast<std::size_t>(between(g, 0, 3));
    agrees_with_the_ops<D>(ConvReLUOp{op, {op.out()}}, op, count,
                           numbers(op, op.in.size(), weights_of(op), count), op.kernel_size(),
                           allowed, allowed_dw);
  }
}

template <class D>
void dense_layers_agree(std::uint64_t seed, double allowed, double allowed_dw) {
  Philox g(seed);
  for (int i = 0; i < generated_shapes; ++i) {
    const DenseOp op{between(g, 1, 150), between(g, 1, 150), one_of(g, 0, 1) == 0, leading_axes(g)};
    INFO(op.inputs << " -> " << op.units << (op.bias ? ", bias, " : ", ") << op.rows() << " rows");
    const auto count = static_cast<std::size_t>(between(g, 0, 9));
    agrees_with_the_ops<D>(DenseReLUOp{op, {op.out()}}, op, count,
                           numbers(op, op.in().size(), op.weights(), count), op.kernel_size(),
                           allowed, allowed_dw);
  }
}

}  // namespace

TEST_CASE("a convolution fused with its ReLU agrees with the two ops") {
  convolutions_agree<Cuda>(11, tolerance, tolerance);
}

TEST_CASE("a dense layer fused with its ReLU agrees with the two ops") {
  dense_layers_agree<Cuda>(12, tolerance, tolerance);
}

TEST_CASE("layers fused with their ReLU agree with the ops in bfloat16 too", "[.slow]") {
  // cuDNN writes a kernel's gradient in bfloat16; our own kernels write it in float.
  convolutions_agree<CudaBFloat16>(13, half_tolerance,
                                   has_gpu() ? half_tolerance : half_dw_tolerance);
  dense_layers_agree<CudaBFloat16>(14, half_tolerance, half_dw_tolerance);
}

TEST_CASE("the bias gradient through a ReLU is correct for many rows and columns") {
  // Few columns, more columns than a block has threads, and one.
  for (const auto& op : {Conv2D<32, 3>::op(shape(26, 26, 1)), Conv2D<300, 1>::op(shape(24, 24, 1)),
                         Conv2D<1, 3>::op(shape(40, 40, 1))}) {
    INFO(describe(op));
    agrees_with_the_ops<Cuda>(ConvReLUOp{op, {op.out()}}, op, 12,
                              numbers(op, op.in.size(), weights_of(op), 12), 0, tolerance,
                              tolerance);
  }
}

TEST_CASE("our own fused kernels preserve NaN, as TensorFlow's ReLU does") {
  TestGpu gpu;
  if (gpu.host() == nullptr) SKIP("NVIDIA's libraries have other rules");
  const DenseOp op{4, 3, true};
  auto n = numbers(op, 4, 15, 5);
  n.x[4] = std::numeric_limits<float>::quiet_NaN();
  const auto y = run<Cuda>(DenseReLUOp{op, {op.out()}}, 5, n).y;
  for (std::size_t i = 0; i < y.size(); ++i) CHECK(std::isnan(y[i]) == (i / 3 == 1));
}

TEST_CASE("a layer needs no more scratch with its ReLU than without") {
  TestGpu gpu;
  if (gpu.host() == nullptr) SKIP("NVIDIA's libraries choose their scratch");
  auto context = Cuda{}.open(1, 0);
  const auto scope = context.scope();
  constexpr std::size_t count = 16;
  const auto scratch_of = [&]<class Op>(const Op& op) {
    return Kernel<Op, Cuda>::prepare(op, context, count).scratch_bytes();
  };
  for (const auto& op :
       {Conv2D<32, 3>::op(shape(26, 26, 1)), Conv2D<8, 3, lockstep::no_bias>::op(shape(12, 12, 4))})
    CHECK(scratch_of(ConvReLUOp{op, {op.out()}}) <= scratch_of(op));
  const DenseOp dense{100, 1000, true};
  CHECK(scratch_of(DenseReLUOp{dense, {dense.out()}}) <= scratch_of(dense));
}

TEST_CASE("a plan fuses a ReLU with the layer before it, written as a layer or as an argument") {
  struct Net : Sequential<Input<8, 8, 1>, Conv2D<3, 3>, ReLU, Conv2D<4, 3, relu>, MaxPooling2D<>,
                          Flatten, Dense<8>, ReLU, Dense<2>> {};
  CHECK(lockstep::detail::fused_names<Net, Cuda>().size() == 3);
}
