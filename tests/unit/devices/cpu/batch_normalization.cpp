#include "lockstep/layers/batch_normalization.hpp"

#include "compare.hpp"
#include "unit/devices/synchronized.hpp"

using namespace lockstep;
using namespace testing;

namespace {

BatchNormalizationOp generated(Philox& g) {
  const int channels = one_of(g, 1, 2, 3, 7, 8, 9, 16, 24, 31, 32, 64, 67);
  const Shape in = one_of(g, 0, 1) == 0 ? shape(channels)
                                        : shape(between(g, 1, 20), between(g, 1, 20), channels);
  return {.in = in,
          .momentum = 0.9,
          .epsilon = 1e-3f,
          .center = one_of(g, 0, 1) == 0,
          .scale = one_of(g, 0, 1) == 0};
}

}  // namespace

TEST_CASE("batch normalization of generated shapes agrees with the reference") {
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
      const auto expected = run_layer<Reference<double>>(
          op, count, as<double>(n.x), as<double>(n.w), as<double>(n.dy),
          {.training = training, .state = as<double>(state)});
      for (const int threads : {1, 2}) {
        INFO("threads " << threads << ", training " << training);
        const auto cpu =
            run_layer<Cpu>(op, count, n.x, n.w, n.dy, {.training = training, .state = state},
                           Cpu{.threads = threads});
        check_close(cpu, expected);
        CHECK(relative_error(cpu.state, expected.state) < 1e-6);
        if (!training) CHECK(cpu.state == state);
      }
    }
  }
}

TEST_CASE("batch normalization on the CPU keeps a variance that is small beside the mean") {
  constexpr BatchNormalizationOp op{.in = shape(50, 50, 3), .momentum = 0};
  auto x = normal_values(8 * op.in.size(), 1);
  for (double& v : x) v += 1000;
  const auto n = as<float>(x), dy = as<float>(normal_values(x.size(), 2));
  const std::vector<double> w{1, 1, 1, 0, 0, 0}, state(6);
  const auto expected =
      run_layer<Reference<double>>(op, 8, as<double>(n), w, as<double>(dy), {.state = state});
  const auto cpu = run_layer<Cpu>(op, 8, n, as<float>(w), dy, {.state = as<float>(state)});
  CHECK(relative_error(cpu.state, expected.state) < 1e-6);
  for (std::size_t k = 3; k < 6; ++k)
    CHECK(std::abs(static_cast<double>(cpu.state[k]) / expected.state[k] - 1) < 1e-6);
  check_close(cpu, expected);
}

TEST_CASE("batch normalization on the CPU gives the same bits for the same threads") {
  constexpr BatchNormalizationOp op{.in = shape(30, 30, 16)};
  const auto n = numbers(op, op.in.size(), 32, 10);
  const std::vector<float> state(32, 1.0f);
  for (const int threads : {1, 2}) {
    const Cpu device{.threads = threads};
    const auto a = run_layer<Cpu>(op, 10, n.x, n.w, n.dy, {.state = state}, device);
    const auto b = run_layer<Cpu>(op, 10, n.x, n.w, n.dy, {.state = state}, device);
    CHECK(a.y == b.y);
    CHECK(a.dx == b.dx);
    CHECK(a.dw == b.dw);
    CHECK(a.state == b.state);
  }
}

TEST_CASE("synchronized normalization on the CPU over shares of a batch is that of the batch") {
  shares_are_one_batch<Cpu>(1e-5, Cpu{.threads = 1});
}
