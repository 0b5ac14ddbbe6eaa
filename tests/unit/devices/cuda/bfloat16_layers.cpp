/// \file
/// Kernels of CudaBFloat16 for layers without products of matrices, beside Reference<double>.
#include <algorithm>
#include <catch2/catch_template_test_macros.hpp>

#include "compare.hpp"
#include "lockstep/layers/layers.hpp"
#include "unit/devices/synchronized.hpp"

using namespace lockstep;
using namespace testing;

namespace {

constexpr int shapes = 6;

template <class O>
void check_parameterless(const O& op, Shape in, std::size_t count, double spread = 1) {
  INFO(to_string(in) << ", spread " << spread);
  const Numbers n = numbers(op, in.size(), 0, count, spread);
  check_in_bfloat16(op, count, n, 0, norm(n.dy));
}

}  // namespace

TEMPLATE_TEST_CASE("activations in bfloat16 agree with the reference, also far from zero", "", ReLU,
                   ReLU6, LeakyReLU<>, ELU, GELU, SiLU, Softplus, Rescaling<factor(0.1)>) {
  Philox g(6);
  for (int i = 0; i < shapes; ++i) {
    const auto op = TestType::op(shape(between(g, 1, 9), between(g, 1, 9), between(g, 1, 20)));
    check_parameterless(op, op.in, static_cast<std::size_t>(between(g, 0, 5)),
                        one_of(g, 1, 10, 100) * 0.1);
  }
}

TEMPLATE_TEST_CASE("gradients from a stored result are those of the result as it is stored", "",
                   Sigmoid, Tanh) {
  TestGpu gpu;
  const auto op = TestType::op(shape(7, 5, 3));
  Numbers n = numbers(op, op.in.size(), 0, 3);
  n.x = rounded(n.x);
  n.dy = rounded(n.dy);
  const auto expected = run<Reference<double>>(op, 3, n);
  const auto result = run<CudaBFloat16>(op, 3, n);
  CHECK(relative_error(result.y, expected.y) < half_tolerance);
  std::vector<double> dx(n.dy.size());
  for (std::size_t k = 0; k < dx.size(); ++k)
    dx[k] = static_cast<double>(n.dy[k]) * op.derivative(static_cast<double>(result.y[k]));
  CHECK(relative_error(result.dx, dx) < half_tolerance);
}

TEMPLATE_TEST_CASE("softmax and its logarithm in bfloat16 agree with the reference", "", Softmax,
                   LogSoftmax) {
  TestGpu gpu;
  Philox g(7);
  for (int i = 0; i < shapes; ++i) {
    const auto op = TestType::op(shape(between(g, 1, 5), i == 0 ? 1100 : between(g, 2, 40)));
    const auto count = static_cast<std::size_t>(between(g, 1, 9));
    INFO(to_string(op.in));
    Numbers n = numbers(op, op.in.size(), 0, count, 2);
    n.x = rounded(n.x);
    n.dy = rounded(n.dy);
    const auto expected = run<Reference<double>>(op, count, n);
    const auto result = run<CudaBFloat16>(op, count, n);
    CHECK(relative_error(result.y, expected.y) < half_tolerance);
    // Backward reads the stored y, whose roundings are of the size of the tolerance.
    CHECK(relative_error(result.dx, expected.dx) < 4 * half_tolerance);
  }
}

TEST_CASE("pooling in bfloat16 agrees with the reference, also where windows overlap") {
  Philox g(4);
  for (int i = 0; i < shapes; ++i) {
    const Pooling2DWindow window{
        .in = shape(between(g, 4, 14), between(g, 4, 14), one_of(g, 1, 3, 8, 40)),
        .pool = {between(g, 1, 4), between(g, 1, 4)},
        .strides = {between(g, 1, 4), between(g, 1, 4)},
        .padding = one_of(g, 0, 1) == 0 ? valid : same};
    const auto count = static_cast<std::size_t>(between(g, 0, 5));
    check_parameterless(MaxPooling2DOp{window}, window.in, count);
    check_parameterless(AveragePooling2DOp{window}, window.in, count);
    check_parameterless(GlobalAveragePooling2DOp{window.in}, window.in, count);
    check_parameterless(GlobalMaxPooling2DOp{window.in}, window.in, count);
  }
  const auto many = MaxPooling2D<17>::op(shape(17, 34, 5));
  check_parameterless(many, many.window.in, 2);
}

TEST_CASE("joined branches in bfloat16 agree with the reference") {
  Philox g(5);
  for (int i = 0; i < shapes; ++i) {
    const Shape in = shape(between(g, 1, 40), between(g, 1, 40), between(g, 1, 20));
    const auto count = static_cast<std::size_t>(between(g, 1, 5));
    INFO(to_string(in));
    const AddOp add{in};
    Numbers n = numbers(add, in.size(), 0, count);
    n.x2 = as<float>(normal_values(n.x.size(), 9));
    check_in_bfloat16(add, count, n);
    const ConcatenateOp both{in, 3};
    Numbers m = numbers(both, in.size(), 0, count);
    m.x2 = as<float>(normal_values(3 * m.x.size() / static_cast<std::size_t>(in.channels()), 9));
    check_in_bfloat16(both, count, m);
  }
}

TEST_CASE("normalizations in bfloat16 keep their statistics in float") {
  TestGpu gpu;
  Philox g(11);
  for (int i = 0; i < shapes; ++i) {
    const int channels = one_of(g, 2, 3, 7, 8, 16, 24, 64, 67);
    const BatchNormalizationOp op{.in = shape(between(g, 1, 20), between(g, 1, 20), channels)};
    const auto count = static_cast<std::size_t>(between(g, 8, 40));
    INFO(to_string(op.in) << ", examples " << count);
    Numbers n = numbers(op, op.in.size(), 2 * op.channels(), count, 2);
    for (std::size_t k = 0; k < n.x.size(); ++k) n.x[k] += static_cast<float>(k % op.channels());
    n.x = rounded(n.x);
    n.dy = rounded(n.dy);
    const std::vector<float> state(2 * op.channels(), 0.5f);
    for (const bool training : {true, false}) {
      const auto expected = run_layer<Reference<double>>(
          op, count, as<double>(n.x), as<double>(n.w), as<double>(n.dy),
          {.training = training, .state = as<double>(state)});
      const auto result = run_layer<CudaBFloat16>(op, count, n.x, n.w, n.dy,
                                                  {.training = training, .state = state});
      CHECK(relative_error(result.y, expected.y) < half_tolerance);
      CHECK(relative_error(result.dx, expected.dx) < half_tolerance);
      CHECK(relative_error(result.dw, expected.dw) < half_dw_tolerance);
      CHECK(relative_error(result.state, expected.state) < 1e-6);
    }
  }
}

TEST_CASE("layer normalization in bfloat16 sums its weight gradients in float") {
  Philox g(13);
  for (int i = 0; i < shapes; ++i) {
    const LayerNormalizationOp op{.in = shape(between(g, 1, 20), between(g, 2, 70))};
    check_in_bfloat16(op, 9, numbers(op, op.in.size(), 2 * op.channels(), 9));
  }
}

TEST_CASE("normalization of the batch itself reads numbers that bfloat16 cannot hold") {
  TestGpu gpu;
  const auto op = Normalization::op(shape(3));
  const std::vector<float> x{1000.5f, 1001.5f, 999, 1002, 1000, 998.5f}, dy{1, 2, 3, 4, 5, 6},
      state{1000, 1000, 1000, 1, 4, 0.25f};
  const auto expected = run_layer<Reference<double>>(op, 2, as<double>(x), {}, as<double>(dy),
                                                     {.state = as<double>(state)});
  const auto result = run_layer<CudaBFloat16>(op, 2, x, {}, dy, {.is_batch = true, .state = state});
  CHECK(relative_error(result.y, expected.y) < half_tolerance);
  CHECK(relative_error(result.dx, expected.dx) < half_tolerance);
}

TEST_CASE("synchronized normalization in bfloat16 over shares of a batch is that of the batch") {
  TestGpu gpu;
  shares_are_one_batch<CudaBFloat16>(1e-2);
}

TEST_CASE("images made larger in bfloat16 agree with the reference") {
  Philox g(36);
  for (int i = 0; i < shapes; ++i) {
    const Shape in = shape(between(g, 1, 9), between(g, 1, 9), one_of(g, 1, 5, 64, 70));
    const UpSampling2DOp op{
        in, {between(g, 1, 4), between(g, 1, 4)}, i % 2 == 0 ? nearest : bilinear};
    check_parameterless(op, in, 3);
    check_parameterless(ZeroPadding2D<2>::op(in), in, 3);
  }
}

TEST_CASE("an embedding behind the batch reads numbers that bfloat16 cannot hold") {
  TestGpu gpu;
  constexpr EmbeddingOp op{shape(2), 5000, 3};
  Numbers n = numbers(op, 2, op.table_size(), 2);
  n.x = {4999, 257, 1, 4097};
  const RunOptions<float> batch{.is_batch = true};
  const auto result = run_layer<CudaBFloat16>(op, 2, n.x, n.w, n.dy, batch);
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t u = 0; u < 3; ++u) {
      const std::size_t at = static_cast<std::size_t>(n.x[i]) * 3 + u;
      CHECK(result.y[3 * i + u] == float(bfloat16(n.w[at])));
      CHECK(result.dw[at] == float(bfloat16(n.dy[3 * i + u])));
    }
  std::string said;
  try {
    run_layer<CudaBFloat16>(op, 2, n.x, n.w, n.dy);
  } catch (const UsageError& error) {
    said = error.what();
  }
  CHECK(said ==
        "embedding: a vocabulary of 5000, where bfloat16 tells whole numbers apart up to 256 only; "
        "use a smaller vocabulary, or make the embedding the first layer");
}
