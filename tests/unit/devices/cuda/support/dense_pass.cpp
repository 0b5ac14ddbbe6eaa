/// \file
/// The products that a dense layer requests from cuBLASLt, with one that records them and computes
/// nothing.
#include "lockstep/devices/cuda/support/dense_pass.hpp"

#include <catch2/catch_message.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/devices/cuda/device.hpp"
#include "support/autotuner_times.hpp"
#include "support/fake_cublaslt.hpp"
#include "support/host_gpu.hpp"
#include "support/kernel_cache.hpp"
#include "support/log_lines.hpp"

using namespace lockstep;
using namespace lockstep::detail::cuda;
using testing::FakeCublasLt, testing::HostGpu, testing::LogLines;

namespace {

/// A GPU with a cuBLASLt, and the tensors of a dense layer: 5 inputs, 8 units, 3 examples.
template <class Precision>
struct Bench {
  using A = typename Precision::activation;
  using Step = DenseStep<Precision>;

  Bench() {
    CublasLtAccess::logged = false;
    open();
  }
  ~Bench() { close(); }
  void open(const BasicCuda<Precision>& device = {}) {
    close();
    context = std::make_unique<CudaContext>(device.open(1, 0));
    scope.reset(new Scope(context->scope()));
    for (auto* const place : {&x, &y, &dx}) *place = allocate<A>(64);
    w = allocate<float>(64);
    scratch = allocate<std::byte>(std::size_t{40} << 20);
    packed = allocate<std::byte>(80 + 256);
  }
  template <class T>
  T* allocate(std::size_t n) {
    memory.push_back(std::make_unique<TuningMemory>(*context, n * sizeof(T)));
    return memory.back()->template as<T>();
  }
  void close() {
    memory.clear();
    scope.reset();
    context.reset();
  }
  Step step(DensePass pass) { return Step(op, *context, 3, pass); }
  /// Sets the times in milliseconds of the candidates in the next measurement.
  void set_times(const std::vector<float>& times) {
    gpu.times.clear();
    testing::add_tuning_times(gpu.times, times);
  }

  testing::OwnKernelCache cache;
  LogLines log;
  HostGpu gpu;
  FakeCublasLt lt;
  DenseOp op{5, 8, true};
  std::unique_ptr<CudaContext> context;
  std::unique_ptr<Scope> scope;
  std::vector<std::unique_ptr<TuningMemory>> memory;
  A *x = nullptr, *y = nullptr, *dx = nullptr;
  float* w = nullptr;
  std::byte *scratch = nullptr, *packed = nullptr;
};

constexpr std::size_t runs = 22;  // of each candidate of up to 0.1 ms: tried, timed once, captured

/// Checks d(n, m) = sum over k of a(n, k) * b(k, m), for a, b and d stored as the functions define.
template <class Left, class Right>
void check_product(const FakeCublasLt::Product& p, std::int64_t rows, std::int64_t columns,
                   std::int64_t depth, const Left& left, const Right& right) {
  CHECK(p.a.used_rows() == static_cast<std::uint64_t>(columns));
  CHECK(p.a.used_columns() == static_cast<std::uint64_t>(depth));
  CHECK(p.b.used_rows() == static_cast<std::uint64_t>(depth));
  CHECK(p.b.used_columns() == static_cast<std::uint64_t>(rows));
  CHECK(p.d.rows == static_cast<std::uint64_t>(columns));
  CHECK(p.d.columns == static_cast<std::uint64_t>(rows));
  bool same = true;
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t n = 0; n < columns; ++n)
      for (std::int64_t k = 0; k < depth; ++k)
        same = same && p.a.at(n, k) == right(k, n) && p.b.at(k, m) == left(m, k) &&
               p.d.at(n, m) == m * columns + n;
  CHECK(same);
  CHECK((p.alpha == 1 && p.beta == 0));
}

}  // namespace

TEST_CASE("the three products of a dense layer, in single precision") {
  Bench<Float32> b;
  const auto in_x = [](std::int64_t n, std::int64_t i) { return n * 5 + i; };
  const auto in_y = [](std::int64_t n, std::int64_t u) { return n * 8 + u; };
  const auto in_w = [](std::int64_t i, std::int64_t u) { return i * 8 + u; };

  // Rows of 5 numbers begin anywhere, rows of 8 are aligned.
  b.set_times({0.01f, 0.01f, 0.01f, 0.01f});
  const auto forward = b.step(DensePass::forward);
  REQUIRE(forward.by_cublaslt());
  CHECK(b.gpu.times.empty());
  CHECK(b.lt.count("cublasLtMatmul") == 3 * runs);
  CHECK(b.lt.preferences ==
        std::map<int, std::uint64_t>{{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 32 << 20},
                                     {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 16},
                                     {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 4},
                                     {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 16},
                                     {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 16}});
  const std::size_t launches = b.gpu.launches;
  forward.forward(*b.context, b.x, b.w, b.y, b.scratch, {b.packed});
  const auto& p = b.lt.product;
  check_product(p, 3, 8, 5, in_x, in_w);
  CHECK(p.a.place == b.w);
  CHECK(p.b.place == b.x);
  CHECK(p.d.place == b.y);
  CHECK(p.epilogue == CUBLASLT_EPILOGUE_BIAS);
  CHECK(p.bias == b.w + 40);
  CHECK(p.compute == CUBLAS_COMPUTE_32F);
  CHECK(p.stream == b.context->stream());
  CHECK(b.gpu.launches == launches);  // our kernels launch nothing

  const auto data = b.step(DensePass::backward_data);
  data.backward_data(*b.context, b.y, b.w, b.dx, b.scratch, {b.packed});
  check_product(p, 3, 5, 8, in_y, [&](std::int64_t u, std::int64_t i) { return in_w(i, u); });
  CHECK(p.d.place == b.dx);
  CHECK(p.epilogue == CUBLASLT_EPILOGUE_DEFAULT);

  const auto weights = b.step(DensePass::backward_weights);
  REQUIRE(weights.fuses_bias());
  weights.backward_weights(*b.context, b.x, b.y, b.w, b.scratch);
  check_product(p, 5, 8, 3, [&](std::int64_t i, std::int64_t n) { return in_x(n, i); }, in_y);
  CHECK(p.epilogue == CUBLASLT_EPILOGUE_BGRADA);
  CHECK(p.bias == b.w + 40);
  CHECK(p.a.place == b.y);  // whose column sums are the bias gradient
  CHECK(b.log.lines.empty());
}

TEST_CASE("the fastest candidate is chosen, gets its scratch, and is known to the next process") {
  Bench<Float32> b;
  b.set_times({0.04f, 0.01f, 0.02f, 0.03f});
  {
    const auto step = b.step(DensePass::forward);
    CHECK(step.scratch_bytes() == 256 + 256 + 2000);
    step.forward(*b.context, b.x, b.w, b.y, b.scratch, {b.packed});
    CHECK(b.lt.product.way == 1);
    CHECK(b.lt.product.workspace_bytes == 2000);
    CHECK(b.lt.product.workspace == b.scratch + 512);
  }
  b.open();
  b.lt.forget();
  {
    const auto step = b.step(DensePass::forward);
    CHECK(step.scratch_bytes() == 256 + 256 + 2000);
    CHECK(b.lt.count("cublasLtMatmul") == 0);
    CHECK(b.lt.count("cublasLtMatmulAlgoGetHeuristic") == 0);
    CHECK(b.lt.count("cublasLtMatmulAlgoCheck") == 1);
    step.forward(*b.context, b.x, b.w, b.y, b.scratch, {b.packed});
    CHECK(b.lt.product.way == 1);
    CHECK(b.lt.product.epilogue == CUBLASLT_EPILOGUE_BIAS);
  }
  b.set_times({0.04f, 0.02f, 0.02f, 0.01f});  // our own is fastest
  CHECK_FALSE(b.step(DensePass::backward_data).by_cublaslt());
  b.open();
  b.lt.forget();
  CHECK_FALSE(b.step(DensePass::backward_data).by_cublaslt());
  CHECK(b.lt.calls() == std::vector<std::string>{"cublasLtCreate", "cublasLtGetVersion"});
  b.close();
  CHECK(b.lt.alive == 0);
}

TEST_CASE("an algorithm that cuBLASLt no longer knows is measured again") {
  Bench<Float32> b;
  b.set_times({0.04f, 0.03f, 0.01f, 0.03f});
  b.step(DensePass::backward_weights);
  const auto measures = [&](std::size_t workspace) {
    b.open();
    b.lt.forget();
    // The sums of dy come with it.
    const auto step = b.step(DensePass::backward_weights);
    CHECK(step.scratch_bytes() == 256 + 256 + workspace);
    CHECK(step.fuses_bias());
    return b.lt.count("cublasLtMatmulAlgoGetHeuristic") > 0;
  };
  CHECK_FALSE(measures(3000));
  b.lt.ways = 2;
  b.set_times({0.04f, 0.01f, 0.03f});
  CHECK(measures(2000));
  CHECK_FALSE(measures(2000));
  for (const std::string content : {"", "7", "fused ", "fused 1", "plain", "other 1"}) {
    INFO(content);
    std::size_t kept = 0;
    for (const auto& path : b.cache.files()) {
      std::ifstream file(path, std::ios::binary);
      const std::string all{std::istreambuf_iterator<char>(file), {}};
      if (all.substr(std::min<std::size_t>(64, all.size())).rfind("fused ", 0) != 0) continue;
      std::ofstream(path, std::ios::binary) << KernelCache::digest(content) << content;
      ++kept;
    }
    CHECK(kept == 1);
    b.set_times({0.04f, 0.01f, 0.03f});
    CHECK(measures(2000));
    CHECK_FALSE(measures(2000));
  }
  // It may request more workspace than there is.
  b.lt.workspace = 20 << 20;
  b.set_times({0.04f, 0.06f, 0.08f});
  CHECK(measures(20 << 20));
  CHECK(b.log.lines.empty());
}

TEST_CASE("our own product is a candidate for small dense layers only") {
  const auto ways = [](const DenseOp& op, std::size_t count) {
    Bench<MixedBFloat16> b;
    const std::size_t launches = b.gpu.launches;
    CHECK(DenseStep<MixedBFloat16>(op, *b.context, count, DensePass::backward_data, false, true)
              .by_cublaslt());
    CHECK(b.lt.count("cublasLtMatmul") > 3);
    return b.gpu.launches > launches;
  };
  CHECK(ways({64, 10, true}, 32));
  CHECK_FALSE(ways({512, 512, true}, 64));
  using Product = MatrixProduct<Float32>;
  CHECK(Product::may_win({64, 64, 5408}));
  CHECK_FALSE(Product::may_win({512, 512, 512}));
}

TEST_CASE("if all of cuBLASLt's algorithms fail, our own kernel runs, with a warning") {
  Bench<MixedBFloat16> b;
  for (const std::size_t n : {1u, 2u, 3u})
    b.lt.fail("cublasLtMatmul", CUBLAS_STATUS_EXECUTION_FAILED, n);
  CHECK_FALSE(DenseStep<MixedBFloat16>({512, 512, true}, *b.context, 64, DensePass::backward_data,
                                       false, true)
                  .by_cublaslt());
  REQUIRE(b.log.lines.size() == 1);
  CHECK_THAT(b.log.lines[0], Catch::Matchers::ContainsSubstring(
                                 "running a matrix product failed: CUBLAS_STATUS_FAKE"));
}

TEST_CASE("deterministic mode uses cuBLASLt's first algorithm and measures nothing") {
  Bench<Float32> b;
  b.open({0, {.deterministic = true}});
  for (const DensePass pass :
       {DensePass::forward, DensePass::backward_data, DensePass::backward_weights})
    CHECK(b.step(pass).by_cublaslt());
  CHECK(b.lt.count("cublasLtMatmul") == 0);
  // Reduction schemes are restricted too.
  CHECK(b.lt.count("cublasLtMatmulPreferenceSetAttribute") % 6 == 0);
}

TEST_CASE("unaligned operands go through scratch") {
  Bench<Float32> b;
  float* const w = b.w + 1;
  b.step(DensePass::forward).forward(*b.context, b.x, w, b.y, b.scratch, {b.packed});
  CHECK(b.lt.product.a.place == b.scratch);
  CHECK(b.lt.product.bias == b.scratch + 256);
  b.step(DensePass::backward_weights).backward_weights(*b.context, b.x, b.y, w, b.scratch);
  CHECK(b.lt.product.d.place == b.scratch);
  CHECK(b.lt.product.bias == b.scratch + 256);
}

TEMPLATE_TEST_CASE("mixed precision multiplies 16-bit operands and writes float weight gradients",
                   "", MixedBFloat16, MixedFloat16) {
  constexpr auto type = std::is_same_v<TestType, MixedFloat16> ? CUDA_R_16F : CUDA_R_16BF;
  Bench<TestType> b;
  b.step(DensePass::forward).forward(*b.context, b.x, b.w, b.y, b.scratch, {b.packed});
  const auto& p = b.lt.product;
  CHECK((p.a.type == type && p.b.type == type && p.d.type == type));
  CHECK(p.bias_type == type);
  // Weights and bias are converted in one launch; backward finds them.
  using Step = typename Bench<TestType>::Step;
  CHECK(Step::packed_bytes(b.op) == 80 + 256);
  CHECK(p.a.place == b.packed);
  CHECK(p.bias == b.packed + 80);
  const auto launches_of = [&](const auto& run) {
    const std::size_t launches = b.gpu.launches;
    run();
    return b.gpu.launches - launches;
  };
  const Step forward = b.step(DensePass::forward), data = b.step(DensePass::backward_data);
  CHECK(launches_of([&] { forward.forward(*b.context, b.x, b.w, b.y, b.scratch, {b.packed}); }) ==
        1);
  for (const bool ready : {true, false}) {
    CHECK(launches_of([&] {
            data.backward_data(*b.context, b.y, b.w, b.dx, b.scratch, {b.packed, ready});
          }) == (ready ? 0 : 1));
    CHECK(p.a.place == b.packed);
  }
  // A bias that would be unaligned after the weights is stored separately.
  b.op = {5, 3, true};
  CHECK(Step::packed_bytes(b.op) == 256 + 256);
  const Step odd = b.step(DensePass::forward);
  b.packed = b.template allocate<std::byte>(512);
  CHECK(launches_of([&] { odd.forward(*b.context, b.x, b.w, b.y, b.scratch, {b.packed}); }) == 2);
  CHECK(p.bias == b.packed + 256);
  b.op = {5, 8, true};
  b.step(DensePass::backward_weights).backward_weights(*b.context, b.x, b.y, b.w, b.scratch);
  CHECK((p.a.type == type && p.b.type == type && p.d.type == CUDA_R_32F));
  CHECK(p.d.place == b.w);
}

TEST_CASE("a product with packed weights is measured separately, with them packed") {
  Bench<MixedBFloat16> b;
  const auto launches_of = [&](bool packed) {
    b.lt.forget();
    b.set_times({0.01f, 0.01f, 0.01f, 0.01f});
    const std::size_t launches = b.gpu.launches;
    DenseStep<MixedBFloat16>(b.op, *b.context, 3, DensePass::backward_data, false, packed);
    CHECK(b.lt.count("cublasLtMatmul") == 3 * runs);
    return b.gpu.launches - launches;
  };
  const std::size_t own = launches_of(true);
  CHECK(launches_of(false) == own + 3 * runs);
}

TEST_CASE("the policy Tf32 lets cuBLASLt round its inputs") {
  Bench<Tf32> b;
  b.step(DensePass::forward).forward(*b.context, b.x, b.w, b.y, b.scratch, {b.packed});
  CHECK(b.lt.product.compute == CUBLAS_COMPUTE_32F_FAST_TF32);
}

TEST_CASE("a ReLU after a dense layer is an epilogue of forward only") {
  Bench<Float32> b;
  const auto step = [&](DensePass pass) {
    return DenseStep<Float32>(b.op, *b.context, 3, pass, true);
  };
  const auto& p = b.lt.product;
  const auto forward = step(DensePass::forward);
  const std::size_t launches = b.gpu.launches;
  forward.forward(*b.context, b.x, b.w, b.y, b.scratch, {b.packed});
  CHECK(b.gpu.launches == launches);
  CHECK(p.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS);
  CHECK(p.bias == b.w + 40);
  step(DensePass::backward_data).backward_data(*b.context, b.y, b.w, b.dx, b.scratch, {b.packed});
  CHECK(p.epilogue == CUBLASLT_EPILOGUE_DEFAULT);
  step(DensePass::backward_weights).backward_weights(*b.context, b.x, b.y, b.w, b.scratch);
  CHECK(p.epilogue == CUBLASLT_EPILOGUE_BGRADA);
  b.op.bias = false;
  step(DensePass::forward).forward(*b.context, b.x, b.w, b.y, b.scratch, {b.packed});
  CHECK(p.epilogue == CUBLASLT_EPILOGUE_RELU);
  CHECK(p.bias == nullptr);
  CHECK(b.log.lines.empty());
}

TEST_CASE("without a fused bias gradient, our own kernel sums it") {
  Bench<Float32> b;
  b.lt.refused = {CUBLASLT_EPILOGUE_BGRADA};
  const auto step = b.step(DensePass::backward_weights);
  REQUIRE(step.by_cublaslt());
  CHECK_FALSE(step.fuses_bias());
  const std::size_t launches = b.gpu.launches;
  step.backward_weights(*b.context, b.x, b.y, b.w, b.scratch);
  CHECK(b.lt.product.epilogue == CUBLASLT_EPILOGUE_DEFAULT);
  CHECK(b.gpu.launches == launches + 1);
}

TEST_CASE("without cuBLASLt, or if it refuses, our own kernels run, with a log line") {
  Bench<Float32> b;
  b.lt.refused = {CUBLASLT_EPILOGUE_BIAS};
  CHECK_FALSE(b.step(DensePass::forward).by_cublaslt());
  REQUIRE(b.log.lines.size() == 1);
  CHECK(
      b.log.lines[0] ==
      "cuda: cuBLASLt refuses a dense layer (3 x 5 -> 8, bias, float32): no algorithm supports it; "
      "lockstep's own kernel runs it and may be slower");
  b.lt.fail("cublasLtMatrixLayoutCreate", CUBLAS_STATUS_ALLOC_FAILED);
  CHECK_FALSE(b.step(DensePass::backward_data).by_cublaslt());
  REQUIRE(b.log.lines.size() == 2);
  CHECK_THAT(b.log.lines[1],
             Catch::Matchers::ContainsSubstring("describing a matrix failed: CUBLAS_STATUS_FAKE"));
  for (const std::size_t n : {1u, 2u})
    b.lt.fail("cublasLtCreate", CUBLAS_STATUS_NOT_INITIALIZED, n);
  for (int i = 0; i < 2; ++i) {
    b.open();
    CHECK_FALSE(b.step(DensePass::backward_data).by_cublaslt());
  }
  REQUIRE(b.log.lines.size() == 3);
  CHECK(b.log.lines[2] ==
        "cuda: opening cuBLASLt failed: CUBLAS_STATUS_FAKE; dense layers run on lockstep's own "
        "kernels, which are slower");
}

TEST_CASE("a product that fails at run time is one sentence") {
  Bench<Float32> b;
  const auto step = b.step(DensePass::forward);
  b.lt.fail("cublasLtMatmul", CUBLAS_STATUS_EXECUTION_FAILED);
  CHECK_THROWS_WITH(step.forward(*b.context, b.x, b.w, b.y, b.scratch, {b.packed}),
                    "cuda: running a matrix product failed: CUBLAS_STATUS_FAKE");
  b.context->commands().abandon();
}
