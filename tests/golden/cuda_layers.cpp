#include <catch2/catch_test_macros.hpp>

#include "golden/layers.hpp"
#include "lockstep/cuda.hpp"
#include "support/test_gpu.hpp"

TEST_CASE("Cuda's layers have Keras' outputs and gradients", "[golden]") {
  const testing::TestGpu gpu;
  golden::meets_layers<lockstep::Cuda>();
}

TEST_CASE("Cuda's activations have Keras' outputs and gradients", "[golden]") {
  const testing::TestGpu gpu;
  golden::meets_activations<lockstep::Cuda>();
}
