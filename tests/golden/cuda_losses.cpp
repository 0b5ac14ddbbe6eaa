#include <catch2/catch_test_macros.hpp>

#include "golden/losses.hpp"
#include "lockstep/cuda.hpp"
#include "support/test_gpu.hpp"

TEST_CASE("Cuda's losses have Keras' values and gradients", "[golden]") {
  testing::TestGpu gpu;
  golden::meets_losses<lockstep::Cuda>();
}
