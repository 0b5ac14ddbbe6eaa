/// \file
/// CudaFloat16, with its scaled loss, compared with Keras in float64: losses within 2 %, as half
/// precision has 11 significant bits.
#include "golden/near_keras.hpp"
#include "lockstep/cuda.hpp"
#include "support/host_cudnn.hpp"
#include "support/test_gpu.hpp"

using Half = lockstep::CudaFloat16;

namespace {

/// One replica, and two on the first GPU.
struct NearKeras {
  template <class Train>
  void operator()(const golden::GoldenFile& file, const std::string& prefix, const Train& train,
                  const golden::Limits&, bool) const {
    CAPTURE(prefix);
    golden::is_near_keras(train(lockstep::OneDevice<Half>{}), file, prefix);
    golden::is_near_keras(train(lockstep::Mirrored<Half>{{"/gpu:0", "/gpu:0"}}), file, prefix);
  }
};

}  // namespace

TEST_CASE("CudaFloat16 trains the tutorial's line close to Keras") {
  const testing::TestGpu gpu;
  golden::meets_linear_regression<Half>(NearKeras{});
}
TEST_CASE("CudaFloat16 trains the small CNN close to Keras") {
  const testing::TestGpu gpu;
  golden::meets_small_cnn<Half>(NearKeras{});
}
TEST_CASE("CudaFloat16 trains the tutorials' CNN on MNIST close to Keras") {
  if (!testing::has_gpu()) SKIP("the emulation on the host would need an hour");
  golden::meets_mnist_cnn<Half>(NearKeras{});
}

TEST_CASE("CudaFloat16 makes ResNet-56's first step close to Keras, with cuDNN on the host",
          "[.slow]") {
  testing::HostGpu gpu;
  testing::HostCudnn cudnn;
  const lockstep::OneDevice<Half> device{Half{0, {.deterministic = true}}};
  golden::meets_resnet56<Half>(
      [&](const golden::GoldenFile& file, const auto& train, const auto&) {
        golden::is_near_keras(train(device), file, "", 1);
      },
      1);
  CHECK(cudnn.runs > 0);
}
