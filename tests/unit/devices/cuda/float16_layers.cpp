/// \file
/// CudaFloat16's kernels compared with Reference<double>: one op for each way to read and write
/// activations, because the kernels are those of CudaBFloat16 except for the type.
#include <cmath>
#include <string>
#include <vector>

#include "compare.hpp"
#include "lockstep/layers/layers.hpp"
#include "support/convolutions.hpp"

using namespace lockstep;
using namespace testing;

namespace {

template <class O>
void check_parameterless(const O& op, Shape in, std::size_t count) {
  INFO(to_string(in));
  const Numbers n = numbers(op, in.size(), 0, count);
  check_in_float16(op, count, n, norm(n.dy));
}

}  // namespace

TEST_CASE("activations and pools in float16 agree with the reference") {
  for (const Shape in : {shape(7, 5, 3), shape(8, 6, 16)})
    for (const std::size_t count : {std::size_t{0}, std::size_t{3}}) {
      check_parameterless(ReLU::op(in), in, count);
      check_parameterless(GELU::op(in), in, count);
      check_parameterless(Softmax::op(in), in, count);
      check_parameterless(MaxPooling2D<>::op(in), in, count);
      check_parameterless(GlobalAveragePooling2D::op(in), in, count);
    }
}

TEST_CASE("dense layers and convolutions in float16 agree with the reference") {
  const DenseOp dense{70, 33, true};
  check_in_float16(dense, 5, numbers(dense, 70, dense.kernel_size() + 33, 5));
  Philox g(41);
  // cuDNN writes a kernel's gradient in float16; our own kernels write it in float.
  const double dw_allowed = has_gpu() ? float16_tolerance : half_dw_tolerance;
  for (int i = 0; i < 2; ++i) {
    const Conv2DOp op = generated_convolution(g);
    INFO(describe(op));
    check_in_float16(op, 2, numbers(op, op.in.size(), weights_of(op), 2), 0, dw_allowed);
  }
}

TEST_CASE("normalizations in float16 keep their statistics in float") {
  const auto op = LayerNormalization<>::op(shape(6, 10));
  check_in_float16(op, 9, numbers(op, op.in.size(), 2 * op.channels(), 9));
}

TEST_CASE("a layer's float16 result overflows to infinity and underflows to 0") {
  TestGpu gpu;
  const auto op = Rescaling<factor(2048.0)>::op(shape(4));
  Numbers n = numbers(op, 4, 0, 1);
  n.x = {31.984375f, 32, -32, 0.5f};
  n.dy = {0x1p-24f, 1, 1, 1};
  const auto result = run<CudaFloat16>(op, 1, n);
  CHECK(result.y[0] == 65504);
  CHECK(std::isinf(result.y[1]));
  CHECK(result.y[2] == -result.y[1]);
  CHECK(result.y[3] == 1024);
  CHECK(result.dx[0] == 0x1p-13f);
  n.dy[0] = 0x1p-26f;
  CHECK(run<CudaFloat16>(op, 1, n).dx[0] == 0);
}

TEST_CASE("an embedding after other layers refuses indices that float16 cannot represent") {
  TestGpu gpu;
  constexpr EmbeddingOp fits{shape(2), 2048, 3}, op{shape(2), 2049, 3};
  const Numbers n = numbers(op, 2, op.table_size(), 2);
  const std::vector<float> x{2047, 0, 1, 1025};
  const auto result = run_layer<CudaFloat16>(fits, 2, x, n.w, n.dy);
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(result.y[3 * i] == float(float16(n.w[static_cast<std::size_t>(x[i]) * 3])));
  std::string message;
  try {
    run_layer<CudaFloat16>(op, 2, x, n.w, n.dy);
  } catch (const UsageError& error) {
    message = error.what();
  }
  CHECK(message ==
        "embedding: the vocabulary is 2049, but float16 represents whole numbers exactly only up "
        "to 2048; use a smaller vocabulary, or make the embedding the first layer");
}
