#include "golden/training.hpp"
#include "lockstep/cuda.hpp"
#include "support/test_gpu.hpp"

using lockstep::Cuda;

TEST_CASE("Cuda trains the tutorial's line as Keras does") {
  const testing::TestGpu gpu;
  golden::meets_linear_regression<Cuda>();
}
TEST_CASE("Cuda trains the small CNN as Keras does") {
  const testing::TestGpu gpu;
  golden::meets_small_cnn<Cuda>();
}
TEST_CASE("Cuda trains the tutorials' CNN on MNIST as Keras does") {
  if (!testing::has_gpu()) SKIP("the emulation on the host would need an hour");
  golden::meets_mnist_cnn<Cuda>();
}
