#include "lockstep/layers/normalization/batch_normalization.hpp"

#include "lockstep/reference.hpp"
#include "unit/devices/synchronized.hpp"

using namespace lockstep;

TEST_CASE("synchronized normalization over any shares of a batch equals that of the whole batch") {
  testing::shares_are_one_batch<Reference<double>>(1e-12);
}

TEST_CASE("synchronized normalization in float also sums over replicas in double") {
  testing::shares_are_one_batch<Reference<float>>(1e-6);
}

TEST_CASE("the variance survives a much larger mean") {
  // 1e6 and 1e6 + 2: mean 1e6 + 1, variance 1.
  constexpr BatchNormalizationOp op{.in = shape(1), .momentum = 0, .epsilon = 0};
  const auto run = testing::run_layer<Reference<float>>(op, 4, {1e6f, 1e6f + 2, 1e6f, 1e6f + 2},
                                                        {1, 0}, {1, 0, 0, 0}, {.state = {0, 1}});
  CHECK(run.y == std::vector<float>{-1, 1, -1, 1});
  CHECK(run.state == std::vector<float>{1e6f + 1, 1});
}

TEST_CASE("a replica without examples leaves its running statistics unchanged") {
  constexpr BatchNormalizationOp op{.in = shape(2)};
  const auto run =
      testing::run_layer<Reference<double>>(op, 0, {}, {1, 1, 0, 0}, {}, {.state = {3, 4, 5, 6}});
  CHECK(run.state == std::vector<double>{3, 4, 5, 6});
  CHECK(run.dw == std::vector<double>(4));
}
