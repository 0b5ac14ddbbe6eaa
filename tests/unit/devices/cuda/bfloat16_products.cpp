/// \file
/// Dense layers and convolutions in mixed precision.
#include "compare.hpp"
#include "support/convolutions.hpp"

using namespace lockstep;
using namespace testing;

namespace {

constexpr int few_shapes = 3;

/// cuDNN writes a kernel's gradient in bfloat16; our own kernels write it in float.
double dw_tolerance() { return has_gpu() ? half_tolerance : half_dw_tolerance; }

template <class O>
void check(const O& op, std::size_t count) {
  check_in_bfloat16(op, count, numbers(op, op.in.size(), weights_of(op), count), 0, 0,
                    half_tolerance, dw_tolerance());
}

}  // namespace

TEST_CASE("in mixed precision dense layers agree with the reference") {
  for (const DenseOp& op : {DenseOp{70, 33, true}, DenseOp{9, 130, false}}) {
    INFO(op.inputs << " -> " << op.units);
    const std::size_t weights =
        op.kernel_size() + (op.bias ? static_cast<std::size_t>(op.units) : 0);
    check_in_bfloat16(op, 5, numbers(op, op.in().size(), weights, 5));
  }
}

TEST_CASE("in mixed precision convolutions of generated shapes agree with the reference") {
  Philox g(41);
  for (int i = 0; i < few_shapes; ++i) {
    const Conv2DOp op = generated_convolution(g);
    INFO(describe(op));
    check(op, 2);
  }
}

TEST_CASE("in mixed precision transposed convolutions agree with the reference") {
  Philox g(42);
  for (int i = 0; i < few_shapes; ++i) {
    const Conv2DTransposeOp op = generated_transposed(g);
    INFO("transposed: " << describe(op.convolution()));
    check(op, 2);
  }
}

TEST_CASE("in mixed precision depthwise convolutions agree with the reference") {
  Philox g(43);
  for (int i = 0; i < few_shapes; ++i) {
    const Conv2DOp like = generated_convolution(g);
    INFO("depthwise: " << describe(like));
    check(depthwise(like, one_of(g, 1, 2)), 2);
  }
}
