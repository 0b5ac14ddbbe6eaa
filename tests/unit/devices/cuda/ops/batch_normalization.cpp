/// \file
#include "lockstep/layers/batch_normalization.hpp"

#include "unit/devices/cuda/compare.hpp"
#include "unit/devices/synchronized.hpp"

using namespace lockstep;
using namespace testing;

namespace {

BatchNormalizationOp generated(Philox& g) {
  const int channels = one_of(g, 1, 2, 3, 7, 8, 16, 24, 31, 32, 64, 67);
  const Shape in = one_of(g, 0, 1) == 0 ? shape(channels)
                                        : shape(between(g, 1, 20), between(g, 1, 20), channels);
  return {.in = in,
          .momentum = 0.9,
          .epsilon = 1e-3f,
          .center = one_of(g, 0, 1) == 0,
          .scale = one_of(g, 0, 1) == 0};
}
void check_close(const LayerResult<float>& a, const LayerResult<double>& b) {
  CHECK(relative_error(a.y, b.y) < tolerance);
  CHECK(relative_error(a.dx, b.dx) < tolerance);
  CHECK(relative_error(a.dw, b.dw) < tolerance);
  CHECK(relative_error(a.state, b.state) < 1e-6);
}

}  // namespace

TEST_CASE("batch normalization of generated shapes agrees with the reference") {
  TestGpu gpu;
  Philox g(11);
  for (int i = 0; i < generated_shapes; ++i) {
    const BatchNormalizationOp op = generated(g);
    // Of few rows little is left but beta, and gradients that are rounding.
    const auto count = static_cast<std::size_t>(between(g, 8, 40));
    const std::size_t weights = op.channels() * (std::size_t(op.center) + std::size_t(op.scale));
    INFO(to_string(op.in) << ", examples " << count << ", center " << op.center << ", scale "
                          << op.scale);
    auto n = numbers(op, op.in.size(), weights, count, 2);
    for (std::size_t k = 0; k < n.x.size(); ++k) n.x[k] += static_cast<float>(k % op.channels());
    std::vector<float> state(2 * op.channels(), 0.5f);
    for (const bool training : {true, false}) {
      INFO("training " << training);
      const auto expected = run_layer<Reference<double>>(
          op, count, as<double>(n.x), as<double>(n.w), as<double>(n.dy),
          {.training = training, .state = as<double>(state)});
      const auto result =
          run_layer<Cuda>(op, count, n.x, n.w, n.dy, {.training = training, .state = state});
      check_close(result, expected);
      if (!training) CHECK(result.state == state);
    }
  }
}

TEST_CASE("the gradients of gamma and beta do not need dx, nor examples") {
  TestGpu gpu;
  constexpr auto op = BatchNormalization<>::op(shape(3, 5));
  const auto n = numbers(op, 15, 10, 4);
  const std::vector<float> state(10, 0.5f);
  const auto with = run_layer<Cuda>(op, 4, n.x, n.w, n.dy, {.state = state});
  const auto without = run_layer<Cuda>(op, 4, n.x, n.w, n.dy, {.want_dx = false, .state = state});
  CHECK(with.dw == without.dw);
  const auto none = run_layer<Cuda>(op, 0, {}, n.w, {}, {.state = state});
  CHECK(none.dw == std::vector<float>(10));
  CHECK(none.state == state);
}

TEST_CASE("batch normalization keeps a variance that is small beside the mean") {
  TestGpu gpu;
  constexpr BatchNormalizationOp op{.in = shape(50, 50, 3), .momentum = 0};
  auto x = normal_values(8 * op.in.size(), 1);
  for (double& v : x) v += 1000;
  x[0] = -1e6;  // the first row is no good estimate of the mean
  const auto n = as<float>(x), dy = as<float>(normal_values(x.size(), 2));
  const std::vector<double> w{1, 1, 1, 0, 0, 0}, state(6);
  const auto expected =
      run_layer<Reference<double>>(op, 8, as<double>(n), w, as<double>(dy), {.state = state});
  const auto result = run_layer<Cuda>(op, 8, n, as<float>(w), dy, {.state = as<float>(state)});
  for (std::size_t k = 3; k < 6; ++k)
    CHECK(std::abs(static_cast<double>(result.state[k]) / expected.state[k] - 1) < 1e-6);
  check_close(result, expected);
}

TEST_CASE("the variance survives a mean that is very large beside it") {
  TestGpu gpu;
  // 1e6 and 1e6 + 2: mean 1e6 + 1, variance 1.
  constexpr BatchNormalizationOp op{.in = shape(1), .momentum = 0, .epsilon = 0};
  const auto run = run_layer<Cuda>(op, 4, {1e6f, 1e6f + 2, 1e6f, 1e6f + 2}, {1, 0}, {1, 0, 0, 0},
                                   {.state = {0, 1}});
  CHECK(run.y == std::vector<float>{-1, 1, -1, 1});
  CHECK(run.state == std::vector<float>{1e6f + 1, 1});
}

TEST_CASE("a channel of equal numbers is beta") {
  TestGpu gpu;
  constexpr auto op = BatchNormalization<>::op(shape(37, 2));
  std::vector<float> x(5 * 37 * 2);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = i % 2 == 0 ? 0.1f : -3.3f;
  const auto run = run_layer<Cuda>(op, 5, x, {2, 3, 0.5f, -0.25f}, std::vector<float>(x.size(), 1),
                                   {.state = {0, 0, 1, 1}});
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(run.y[i] == (i % 2 == 0 ? 0.5f : -0.25f));
}

TEST_CASE("a second forward of a step gives the same result and leaves the state") {
  TestGpu gpu;
  using K = Kernel<BatchNormalizationOp, Cuda>;
  constexpr auto op = BatchNormalization<>::op(shape(9, 5));
  const auto n = numbers(op, 45, 10, 4);
  auto context = Cuda{}.open(1, 0);
  const auto scope = context.scope();
  DeviceArray<Cuda, float> x(context, n.x), w(context, n.w), y(context, n.x.size()),
      state(context, std::vector<float>(10, 0.5f));
  DeviceArray<Cuda, std::byte> once(context, K::saved_once(op));
  auto prepared = K::prepare(op, context, 4);
  DeviceArray<Cuda, std::byte> scratch(context, prepared.scratch_bytes());
  GroupOfOne group;
  StepContext step{whole_batch(4), true, 0, 0, CollectiveRef(group)};
  const Io<Cuda> io{step,     context,      7,       x.data(),    nullptr,        y.data(),
                    w.data(), state.data(), nullptr, once.data(), scratch.data(), nullptr,
                    nullptr,  nullptr,      nullptr};
  K::forward(op, io, prepared);
  const auto first = y.download(), moved = state.download();
  CHECK(moved != std::vector<float>(10, 0.5f));
  y.poison();
  step.again = true;
  K::forward(op, io, prepared);
  CHECK(y.download() == first);
  CHECK(state.download() == moved);
}

TEST_CASE("batch normalization gives the same bits each time") {
  TestGpu gpu;
  constexpr BatchNormalizationOp op{.in = shape(30, 30, 16)};
  const auto n = numbers(op, op.in.size(), 32, 10);
  const std::vector<float> state(32, 1.0f);
  const auto a = run_layer<Cuda>(op, 10, n.x, n.w, n.dy, {.state = state});
  const auto b = run_layer<Cuda>(op, 10, n.x, n.w, n.dy, {.state = state});
  CHECK(a.y == b.y);
  CHECK(a.dx == b.dx);
  CHECK(a.dw == b.dw);
  CHECK(a.state == b.state);
}

TEST_CASE("synchronized normalization on GPUs over shares of a batch is that of the batch") {
  TestGpu gpu;
  shares_are_one_batch<Cuda>(1e-5);
}
