/// \file
/// Layers with random numbers: the GPU draws the same numbers as the reference.
#include "lockstep/layers/regularization/dropout.hpp"

#include <catch2/catch_test_macros.hpp>
#include <initializer_list>
#include <vector>

#include "lockstep/layers/regularization/gaussian_noise.hpp"
#include "lockstep/layers/regularization/spatial_dropout2d.hpp"
#include "unit/devices/cuda/compare.hpp"

using namespace lockstep;
using namespace testing;

namespace {

/// Equals Reference<float> bit by bit, because masks are drawn as integers; in bfloat16, its
/// results rounded.
template <class O>
void check_bits(const O& op, std::size_t count, bool training = true) {
  INFO(to_string(op.in) << ", examples " << count);
  const Numbers n = numbers(op, op.in.size(), 0, count);
  RunOptions<float> options;
  options.training = training;
  options.first_ordinal = (1ull << 32) - 2;
  options.seed = 12345678901234567ull;
  options.pass = 3;
  const auto expected = run_layer<Reference<float>>(op, count, n.x, n.w, n.dy, options);
  const auto result = run_layer<Cuda>(op, count, n.x, n.w, n.dy, options);
  CHECK(result.y == expected.y);
  CHECK(result.dx == expected.dx);
  if (training && op.rate > 0 && n.x.size() > 100) CHECK(result.y != n.x);

  const auto x = rounded(n.x), dy = rounded(n.dy);
  const auto wide = run_layer<Reference<float>>(op, count, x, n.w, dy, options);
  const auto narrow = run_layer<CudaBFloat16>(op, count, x, n.w, dy, options);
  CHECK(narrow.y == rounded(wide.y));
  CHECK(narrow.dx == rounded(wide.dx));
}

}  // namespace

TEST_CASE("Dropout on the GPU drops the same elements as the reference") {
  TestGpu gpu;
  check_bits(DropoutOp{shape(64), 0.25f}, 9);
  check_bits(DropoutOp{shape(5, 7, 3), 0.5f}, 5);
  check_bits(DropoutOp{shape(1), 0.9f}, 200);
  check_bits(DropoutOp{shape(30), 0.0f}, 5);
  check_bits(DropoutOp{shape(30), 0.3f}, 5, false);
  check_bits(DropoutOp{shape(30), 0.3f}, 0);
}

TEST_CASE("SpatialDropout2D on the GPU drops the same channels as the reference") {
  TestGpu gpu;
  check_bits(SpatialDropout2DOp{shape(5, 4, 7), 0.4f}, 6);
  check_bits(SpatialDropout2DOp{shape(1, 3, 64), 0.5f}, 3);
  check_bits(SpatialDropout2DOp{shape(9, 9, 1), 0.5f}, 8);
  check_bits(SpatialDropout2DOp{shape(9, 9, 1), 0.5f}, 3, false);
}

TEST_CASE("noise on the GPU equals the reference's") {
  for (const Shape in : {shape(64), shape(5, 7, 3), shape(1)})
    for (const std::size_t count : std::initializer_list<std::size_t>{0, 1, 9}) {
      const GaussianNoiseOp op{in, 0.5f};
      check_against_reference(op, count, numbers(op, in.size(), 0, count));
      const TestGpu gpu;
      // The noise alone, so that x does not hide its error.
      const std::vector<double> nothing(count * in.size());
      const auto noise = run_layer<Reference<double>>(op, count, nothing, {}, nothing).y;
      const auto none = as<float>(nothing);
      CHECK(relative_error(run_layer<Cuda>(op, count, none, {}, none).y, noise) < 1e-6);
    }
}
