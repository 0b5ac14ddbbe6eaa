#include <catch2/catch_test_macros.hpp>

#include "golden/metrics.hpp"
#include "lockstep/cuda.hpp"
#include "support/test_gpu.hpp"

TEST_CASE("Cuda's metrics have Keras' values", "[golden]") {
  const testing::TestGpu gpu;
  golden::meets_metrics<lockstep::Cuda>();
}
TEST_CASE("Cuda's metrics have Keras' values with weights", "[golden]") {
  const testing::TestGpu gpu;
  golden::meets_weighted_metrics<lockstep::Cuda>();
}
