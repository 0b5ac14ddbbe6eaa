/// \file
/// All gradients of a dense layer in one launch: its results, and when it is chosen.
#include "lockstep/devices/cuda/support/dense_backward.hpp"

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "lockstep/devices/cuda/ops/dense.hpp"
#include "support/autotuner_times.hpp"
#include "support/fake_cublaslt.hpp"
#include "support/kernel_cache.hpp"
#include "unit/devices/cuda/compare.hpp"

using namespace lockstep;
using namespace testing;
using lockstep::detail::cuda::DenseBackward;
using lockstep::detail::cuda::DenseCalls;

namespace {

std::size_t weights_of(const DenseOp& op) {
  return op.kernel_size() + (op.bias ? static_cast<std::size_t>(op.units) : 0);
}

/// The dense_edges within its limits, and the edges of its tiles.
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

TEST_CASE("a NaN result of the ReLU passes its gradient in the single launch") {
  TestGpu gpu;
  const DenseOp op{4, 3, false};
  auto n = numbers(op, 4, 12, 5);
  n.x[4] = std::numeric_limits<float>::quiet_NaN();  // so the second example's result is NaN too
  const auto dx = run<Cuda>(DenseReLUOp{op, {op.out()}}, 5, n).dx;
  const auto unmasked = run<Cuda>(op, 5, n).dx;
  for (std::size_t i = 0; i < dx.size(); ++i) CHECK(std::isfinite(dx[i]));
  for (std::size_t i = 4; i < 8; ++i) CHECK(dx[i] == unmasked[i]);
}

TEST_CASE("with cuBLASLt, the faster of a single launch and separate products is chosen") {
  OwnKernelCache cache;
  HostGpu gpu;
  FakeCublasLt lt;
  const auto calls = [&](int units, std::vector<float> last, const CudaOptions& options) {
    const DenseOp op{40, units, true};
    auto context = Cuda{0, options}.open(1, 0);
    const auto scope = context.scope();
    // Each of the three passes has three algorithms of cuBLASLt and our own product.
    gpu.times.clear();
    for (int pass = 0; pass < 3; ++pass) add_tuning_times(gpu.times, {0.01f, 0.02f, 0.03f, 0.04f});
    add_tuning_times(gpu.times, last);
    lt.forget();
    const DenseCalls<Float32, true> result(op, context, 9);
    return std::pair(result.is_one_launch(), result.scratch_bytes());
  };
  CHECK_FALSE(calls(12, {0.2f, 0.1f}, {.deterministic = true}).first);
  const auto one = calls(12, {0.2f, 0.1f}, {});
  CHECK(one.first);
  CHECK(gpu.times.empty());
  // Cached now, for another context too, which measures no products.
  CHECK(calls(12, {0.1f, 0.2f}, {}) == one);
  CHECK(lt.count("cublasLtMatmul") == 0);
  CHECK(lt.count("cublasLtMatmulDescCreate") == 1);
  const auto products = calls(16, {0.1f, 0.2f}, {});
  CHECK_FALSE(products.first);
  CHECK(products.second >= one.second);
  CHECK(calls(16, {0.2f, 0.1f}, {}) == products);
  CHECK(lt.count("cublasLtMatmul") == 0);
}

TEST_CASE("the gradients of a dense layer are measured on operands that no run overwrites") {
  using lockstep::detail::cuda::DensePass, lockstep::detail::cuda::DenseStep;
  OwnKernelCache cache;
  HostGpu gpu;
  FakeCublasLt lt;
  const DenseOp op{40, 12, false};
  auto context = Cuda{}.open(1, 0);
  const auto scope = context.scope();
  const auto race = [&](std::vector<float> ways) {
    gpu.times.clear();
    add_tuning_times(gpu.times, ways);
  };
  for (const DensePass pass :
       {DensePass::forward, DensePass::backward_data, DensePass::backward_weights}) {
    race({0.1f, 0.2f, 0.2f, 0.2f});
    DenseStep<Float32>(op, context, 9, pass);
  }
  std::set<const void*> read, written;
  lt.at_matmul = [&] {
    read.insert({lt.product.a.place, lt.product.b.place});
    written.insert(lt.product.d.place);
  };
  race({0.1f, 0.1f});
  const DenseCalls<Float32> calls(op, context, 9);
  CHECK(gpu.times.empty());
  CHECK(read.size() == 3);
  CHECK(written.size() == 2);
  for (const void* const place : written) CHECK(read.count(place) == 0);
}
