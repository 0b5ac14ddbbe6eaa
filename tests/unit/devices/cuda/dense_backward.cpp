/// \file
/// All gradients of a dense layer in one launch: its numbers, and when it is taken.
#include "lockstep/devices/cuda/kernels/dense_backward.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "compare.hpp"
#include "lockstep/devices/cuda/kernels/dense.hpp"
#include "support/fake_cublaslt.hpp"
#include "support/kernel_cache.hpp"

using namespace lockstep;
using namespace testing;
using lockstep::detail::cuda::DenseBackward;
using lockstep::detail::cuda::DenseCalls;

namespace {

std::size_t weights_of(const DenseOp& op) {
  return op.kernel_size() + (op.bias ? static_cast<std::size_t>(op.units) : 0);
}

/// The dense_edges of its range and of its tiles.
const std::vector<std::pair<DenseOp, std::size_t>> dense_edges{
    {{1, 1, true}, 1},    {{64, 10, true}, 64},   {{65, 64, true}, 65},  {{33, 256, true}, 7},
    {{16, 33, false}, 2}, {{300, 31, true}, 256}, {{17, 129, true}, 130}};

}  // namespace

TEST_CASE("all gradients of a dense layer in one launch agree with the reference") {
  for (const auto& [op, count] : dense_edges) {
    INFO(count << " x " << op.inputs << " -> " << op.units);
    REQUIRE(DenseBackward<Float32>::fits(op, count));
    const Numbers n = numbers(op, op.in().size(), weights_of(op), count);
    check_against_reference(op, count, n);
    if (op.inputs < 100) check_in_bfloat16(op, count, n, op.kernel_size());
  }
  CHECK_FALSE(DenseBackward<Float32>::fits({64, 10, true}, 0));
  CHECK_FALSE(DenseBackward<Float32>::fits({64, 10, true}, 257));
  CHECK_FALSE(DenseBackward<Float32>::fits({64, 257, true}, 64));
}

TEST_CASE("backward of a small dense layer is one launch, also through a ReLU") {
  TestGpu gpu;
  if (gpu.host() == nullptr) SKIP("launches are counted on the host only");
  const auto launches = [&](const auto& op, std::size_t count, bool want_dx) {
    const std::size_t before = gpu.host()->launches;
    run<Cuda>(op, count, numbers(op, 40, 40 * 12 + 12, count), {}, want_dx);
    return gpu.host()->launches - before;
  };
  const DenseOp op{40, 12, true};
  for (const bool want_dx : {true, false}) {
    CHECK(launches(op, 9, want_dx) == 2);
    CHECK(launches(DenseReLUOp{op, {op.out()}}, 9, want_dx) == 2);
  }
  CHECK(launches(DenseReLUOp{op, {op.out()}}, 257, true) > 4);
}

TEST_CASE("what is not a number is masked by the ReLU in one launch, too") {
  TestGpu gpu;
  const DenseOp op{4, 3, false};
  auto n = numbers(op, 4, 12, 5);
  n.x[4] = std::numeric_limits<float>::quiet_NaN();  // and so the second example's result
  const auto dx = run<Cuda>(DenseReLUOp{op, {op.out()}}, 5, n).dx;
  for (std::size_t i = 0; i < dx.size(); ++i) CHECK(std::isfinite(dx[i]));
  for (std::size_t i = 4; i < 8; ++i) CHECK(dx[i] == 0);
}

TEST_CASE("where cuBLASLt is, the faster of one launch and of its products is taken") {
  OwnKernelCache cache;
  HostGpu gpu;
  FakeCublasLt lt;
  const auto calls = [&](int units, std::vector<float> last, const CudaOptions& options) {
    const DenseOp op{40, units, true};
    auto context = Cuda{0, options}.open(1, 0);
    const auto scope = context.scope();
    // The three passes have three ways of cuBLASLt's each, and ours.
    gpu.times.clear();
    for (int pass = 0; pass < 3; ++pass) gpu.times.insert(gpu.times.end(), {1, 2, 3, 4});
    gpu.times.insert(gpu.times.end(), last.begin(), last.end());
    const DenseCalls<Float32, true> result(op, context, 9);
    return std::pair(result.is_one_launch(), result.scratch_bytes());
  };
  CHECK_FALSE(calls(12, {2, 1}, {.deterministic = true}).first);
  const auto one = calls(12, {2, 1}, {});
  CHECK(one.first);
  CHECK(calls(12, {1, 2}, {}) == one);  // known now, also to another context
  const auto products = calls(16, {1, 2}, {});
  CHECK_FALSE(products.first);
  CHECK(products.second >= one.second);
}
