/// \file
/// Convolution and Dense fused with ReLU on the Cpu.
#include "lockstep/layers/activations/relu.hpp"
#include "lockstep/layers/dense.hpp"
#include "unit/devices/cpu/conv2d_ops.hpp"

using namespace lockstep;
using namespace testing;

namespace {

/// The two ops in sequence, as a plan without the rule runs them.
template <class First>
LayerResult<float> unfused(const First& first, const ReLUOp& relu, std::size_t count, Numbers n,
                           bool want_dx, const Cpu& device) {
  const auto dy = n.dy;
  auto result = run(first, count, n, device, want_dx);
  const auto activation = run(relu, count, Numbers{result.y, {}, dy, {}}, device);
  n.dy = activation.dx;
  result = run(first, count, n, device, want_dx);
  result.y = activation.y;
  return result;
}

}  // namespace

TEST_CASE("a convolution fused with a ReLU agrees with the two ops") {
  Philox g(11);
  for (int i = 0; i < generated_shapes; ++i) {
    const Conv2DOp op = generated_convolution(g);
    const ConvReLUOp fused{op, ReLU::op(op.out())};
    INFO(describe(op));
    const auto count = static_cast<std::size_t>(between(g, 1, 5));
    const Numbers n = numbers(op, op.in.size(), weights_of(op), count);
    for (const bool want_dx : {false, true})
      for (const int threads : {1, 2})
        check_close(run(fused, count, n, Cpu{.threads = threads}, want_dx),
                    unfused(op, fused.relu, count, n, want_dx, Cpu{.threads = threads}));
  }
}

TEST_CASE("a dense layer fused with a ReLU agrees with the two ops") {
  Philox g(12);
  for (int i = 0; i < generated_shapes; ++i) {
    const int inputs = one_of(g, 0, 1) == 0 ? between(g, 1, 70) : between(g, 250, 400);
    const DenseOp op{inputs, between(g, 1, 70), one_of(g, 0, 1) == 0, leading_axes(g)};
    const DenseReLUOp fused{op, ReLU::op(op.out())};
    INFO(op.inputs << " -> " << op.units << (op.bias ? ", bias, " : ", ") << op.rows() << " rows");
    const auto count = static_cast<std::size_t>(between(g, 1, 9));
    const Numbers n = numbers(op, op.in().size(), op.weights(), count);
    for (const int threads : {1, 2})
      check_close(run(fused, count, n, Cpu{.threads = threads}),
                  unfused(op, fused.relu, count, n, true, Cpu{.threads = threads}));
  }
}

TEST_CASE("fused ops declare what the plan needs") {
  const auto conv = Conv2D<32, 3>::op(shape(28, 28, 1));
  const ConvReLUOp fused{conv, ReLU::op(conv.out())};
  CHECK(fused.out() == shape(26, 26, 32));
  CHECK(fused.flops() == conv.flops());
  CHECK(fused == ConvReLUOp{conv, ReLU::op(conv.out())});
  CHECK_FALSE(fused == ConvReLUOp{Conv2D<32, 5>::op(shape(28, 28, 1)), fused.relu});
}
