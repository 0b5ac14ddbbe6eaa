/// \file
/// Cuda compared with Keras.
#include <array>
#include <catch2/catch_test_macros.hpp>

#include "golden/heads.hpp"
#include "golden/layers.hpp"
#include "golden/losses.hpp"
#include "golden/metrics.hpp"
#include "golden/mirrored.hpp"
#include "golden/optimizers.hpp"
#include "golden/recurrent.hpp"
#include "golden/training.hpp"
#include "golden/weighted.hpp"
#include "lockstep/cuda.hpp"
#include "support/test_gpu.hpp"

using lockstep::Cuda;

/// A user-defined loss.
template <>
struct lockstep::CudaText<golden::PredictionOp> {
  static constexpr char functions[] = R"cuda(
__device__ float row(const float* p, const Target*, float* g, float scale, int lane) {
  if (g && lane == 0) g[0] = scale;
  return p[0];
}
)cuda";
  static std::array<CudaDefine, 0> defines(const golden::PredictionOp&) { return {}; }
};

namespace {

/// Two and three replicas, all on the first GPU, compared with Keras and with one replica.
struct ReplicasOnOneGpu {
  template <class Train>
  void operator()(const golden::GoldenFile& file, const std::string& prefix, const Train& train,
                  const golden::Limits& limits, bool is_adam) const {
    const golden::Trained one = train(lockstep::OneDevice<Cuda>{});
    for (const std::size_t replicas : {2u, 3u}) {
      CAPTURE(prefix, replicas);
      const golden::Trained many =
          train(lockstep::Mirrored<Cuda>{std::vector<Cuda>(replicas, Cuda{"/gpu:0"})});
      golden::is_as_keras(many, file, prefix, limits);
      golden::MirroredCheck<Cuda>::is_as_one(many, one, is_adam);
    }
  }
};

}  // namespace

TEST_CASE("Cuda's optimizers move the weights as Keras' do", "[golden]") {
  const testing::TestGpu gpu;
  golden::meets_optimizers<Cuda>({{1, 0, 1}, {2, 4, 2}});
}

TEST_CASE("Cuda's layers have Keras' outputs and gradients", "[golden]") {
  const testing::TestGpu gpu;
  golden::meets_layers<Cuda>();
}

TEST_CASE("Cuda's recurrent layers have Keras' outputs and gradients", "[golden]") {
  const testing::TestGpu gpu;
  golden::meets_recurrent<Cuda>();
}

TEST_CASE("networks with several losses on Cuda train as simulated", "[golden]") {
  const testing::TestGpu gpu;
  golden::meets_heads(lockstep::OneDevice<Cuda>{}, golden::tolerance<Cuda>);
}

TEST_CASE("Cuda's activations have Keras' outputs and gradients", "[golden]") {
  const testing::TestGpu gpu;
  golden::meets_activations<Cuda>();
}

TEST_CASE("Cuda's losses have Keras' values and gradients", "[golden]") {
  testing::TestGpu gpu;
  golden::meets_losses<Cuda>();
}

TEST_CASE("Cuda's metrics have Keras' values", "[golden]") {
  const testing::TestGpu gpu;
  golden::meets_metrics<Cuda>();
}
TEST_CASE("Cuda's metrics have Keras' values with weights", "[golden]") {
  const testing::TestGpu gpu;
  golden::meets_weighted_metrics<Cuda>();
}

TEST_CASE("on Cuda, fit and evaluate with weights do what Keras' do", "[golden]") {
  const testing::TestGpu gpu;
  golden::meets_weighted<Cuda>();
}

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

TEST_CASE("replicas on one GPU train the tutorial's line as Keras does") {
  const testing::TestGpu gpu;
  golden::meets_linear_regression<Cuda>(ReplicasOnOneGpu{});
}
TEST_CASE("replicas on one GPU train the small CNN as Keras does") {
  const testing::TestGpu gpu;
  golden::meets_small_cnn<Cuda>(ReplicasOnOneGpu{});
}
