/// \file
#include "lockstep/layers/preprocessing/normalization.hpp"

#include "lockstep/layers/normalization/group_normalization.hpp"
#include "lockstep/layers/normalization/layer_normalization.hpp"
#include "lockstep/layers/normalization/rms_normalization.hpp"
#include "unit/devices/cuda/compare.hpp"
#include "unit/devices/long_sums.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("layer normalization of generated shapes agrees with the reference") {
  Philox g(21);
  for (int i = 0; i < generated_shapes; ++i) {
    const int channels = i == 0 ? 1500 : between(g, 3, 80);
    LayerNormalizationOp op{one_of(g, 0, 1) == 0 ? shape(channels)
                                                 : shape(between(g, 1, 20), channels)};
    op.center = one_of(g, 0, 1) == 0;
    op.scale = one_of(g, 0, 1) == 0;
    const auto count = static_cast<std::size_t>(between(g, 0, 40));
    INFO(to_string(op.in) << ", examples " << count << ", center " << op.center << ", scale "
                          << op.scale);
    const std::size_t weights = op.channels() * (std::size_t(op.center) + std::size_t(op.scale));
    Numbers n = numbers(op, op.in.size(), weights, count, 2);
    for (float& v : n.x) v += 5;
    check_against_reference(op, count, n);
  }
}

TEST_CASE("normalization by the root mean square agrees with the reference") {
  for (const int channels : {2, 7, 1500}) {
    const RMSNormalizationOp op{shape(3, channels)};
    check_against_reference(op, 5, numbers(op, op.in.size(), op.weights(), 5, 2));
  }
}

TEST_CASE("group normalization of generated shapes agrees with the reference") {
  Philox g(22);
  for (int i = 0; i < generated_shapes; ++i) {
    GroupNormalizationOp op{shape(between(g, 3, 20), between(g, 1, 9), 1), between(g, 1, 5)};
    op.in = shape(op.in[0], op.in[1], op.groups * one_of(g, 1, 3, 8, 40));
    op.center = one_of(g, 0, 1) == 0;
    op.scale = one_of(g, 0, 1) == 0;
    const auto count = static_cast<std::size_t>(between(g, 0, 5));
    INFO(to_string(op.in) << ", examples " << count << ", groups " << op.groups);
    check_against_reference(op, count, numbers(op, op.in.size(), op.weights(), count, 2));
  }
}

TEST_CASE("layer normalization gives rows of mean 0 and variance 1, also far from 0") {
  TestGpu gpu;
  const auto op = LayerNormalization<epsilon(1e-12f)>::op(shape(3, 4));
  std::vector<float> x;
  for (int i = 0; i < 12; ++i) x.push_back(1e6f + static_cast<float>(i * i));
  const auto y = run_layer<Cuda>(op, 1, x, {1, 1, 1, 1, 0, 0, 0, 0}, {}, {.training = false}).y;
  for (std::size_t row = 0; row < 12; row += 4) {
    float sum = 0, squares = 0;
    for (std::size_t k = row; k < row + 4; ++k) sum += y[k], squares += y[k] * y[k];
    CHECK(std::abs(sum) < 1e-6f);
    CHECK(std::abs(squares - 4) < 1e-5f);
  }
}

TEST_CASE("normalization by given means and variances agrees with the reference") {
  TestGpu gpu;
  for (const int channels : {1, 3, 40}) {
    const auto op = Normalization::op(shape(5, channels));
    const auto c = static_cast<std::size_t>(channels);
    const Numbers n = numbers(op, op.in.size(), 0, 4, 3);
    auto state = normal_values(2 * c, 5);
    for (std::size_t k = c; k < 2 * c; ++k) state[k] *= state[k];
    state[c] = 0;  // the deviation is then 1e-7
    state = as<double>(as<float>(state));
    for (const bool want_dx : {true, false}) {
      const auto expected = run_layer<Reference<double>>(
          op, 4, as<double>(n.x), {}, as<double>(n.dy), {.want_dx = want_dx, .state = state});
      const auto result =
          run_layer<Cuda>(op, 4, n.x, {}, n.dy, {.want_dx = want_dx, .state = as<float>(state)});
      for (std::size_t i = 0; i < n.x.size(); ++i)
        CHECK(std::abs(static_cast<double>(result.y[i]) - expected.y[i]) <=
              1e-5 * std::abs(expected.y[i]));
      CHECK(relative_error(result.dx, expected.dx) < tolerance);
      CHECK(result.state == as<float>(state));
    }
  }
}

namespace {

void check_long_sums(long_sums::Terms which) {
  const TestGpu gpu;
  const Cuda device;
  using namespace long_sums;
  CHECK(of_bias<Conv2D<5, 1>>(shape(64, 64, 5), 60, which, device) < allowed);
  CHECK(of_kernel<DepthwiseConv2D<3>>(shape(64, 64, 4), 8, which, device) < allowed);
  CHECK(of_bias<Dense<3>>(shape(2), 400'000, which, device) < allowed);
  CHECK(of_bias<Dense<64>>(shape(64), 1024, which, device) < allowed);
  CHECK(of_layer_normalization(shape(64, 16), 50, which, device) < allowed);
  CHECK(of_batch_normalization(shape(64, 64, 16), 8, which, device) < allowed);
  CHECK(of_mean<GlobalAveragePooling2D>(shape(80, 80, 17), which, device) < allowed);
  CHECK(of_mean<AveragePooling2D<25>>(shape(25, 25, 9), which, device) < allowed);
  CHECK(of_embedding(1000, which, device) < allowed);
}

}  // namespace

TEST_CASE("sums over examples and pixels lose less than 1e-6 of their magnitude on a GPU") {
  check_long_sums(long_sums::Terms::equal);
}

TEST_CASE("sums of random terms lose less than 1e-6 of their magnitude on a GPU", "[.slow]") {
  check_long_sums(long_sums::Terms::random);
}
