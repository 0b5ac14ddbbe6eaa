#include "golden/weighted.hpp"
#include "lockstep/cuda.hpp"
#include "support/test_gpu.hpp"

TEST_CASE("on Cuda, fit and evaluate with weights do what Keras' do", "[golden]") {
  const testing::TestGpu gpu;
  golden::meets_weighted<lockstep::Cuda>();
}
