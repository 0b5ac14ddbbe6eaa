/// \file
/// Random layers: the Cpu draws the same numbers as the reference, with any number of threads.
#include "compare.hpp"
#include "lockstep/layers/regularization/gaussian_noise.hpp"
#include "lockstep/layers/regularization/spatial_dropout2d.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("spatial dropout of generated shapes agrees with the reference") {
  Philox g(36);
  for (int i = 0; i < generated_shapes; ++i) {
    const SpatialDropout2DOp op{shape(between(g, 1, 30), between(g, 1, 30), between(g, 1, 40)),
                                static_cast<float>(between(g, 0, 9)) / 10};
    INFO(to_string(op.in) << ", rate " << op.rate);
    const auto count = static_cast<std::size_t>(between(g, 1, 5));
    check_against_reference(op, count, numbers(op, op.in.size(), 0, count));
  }
}

TEST_CASE("Gaussian noise of generated shapes agrees with the reference") {
  Philox g(37);
  for (int i = 0; i < generated_shapes; ++i) {
    const GaussianNoiseOp op{shape(between(g, 1, 30), between(g, 1, 30), between(g, 1, 9)),
                             static_cast<float>(between(g, 0, 10)) / 10};
    INFO(to_string(op.in) << ", deviation " << op.stddev);
    const auto count = static_cast<std::size_t>(between(g, 1, 5));
    check_against_reference(op, count, numbers(op, op.in.size(), 0, count));
  }
}

TEST_CASE("random draws have equal bits for any number of threads") {
  const auto agree = [](const auto& op) {
    const Numbers n = numbers(op, op.in.size(), 0, 9);
    const auto one = run(op, 9, n, Cpu{.threads = 1}), two = run(op, 9, n, Cpu{.threads = 2});
    CHECK(one.y == two.y);
    CHECK(one.dx == two.dx);
  };
  agree(SpatialDropout2DOp{shape(20, 20, 30), 0.5f});
  agree(GaussianNoiseOp{shape(20, 20, 30), 0.5f});
}
