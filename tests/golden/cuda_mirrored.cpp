#include "golden/training.hpp"
#include "lockstep/cuda.hpp"
#include "support/test_gpu.hpp"

using lockstep::Cuda;

namespace {

/// Two and three replicas, all on the first GPU.
struct ReplicasOnOneGpu {
  template <class Train>
  void operator()(const golden::GoldenFile& file, const std::string& prefix, const Train& train,
                  const golden::Limits& limits, bool) const {
    for (const std::size_t replicas : {2, 3}) {
      CAPTURE(prefix, replicas);
      golden::is_as_keras(
          train(lockstep::Mirrored<Cuda>{std::vector<Cuda>(replicas, Cuda{"/gpu:0"})}), file,
          prefix, limits);
    }
  }
};

}  // namespace

TEST_CASE("replicas on one GPU train the line of the tutorial as Keras does") {
  const testing::TestGpu gpu;
  golden::meets_linear_regression<Cuda>(ReplicasOnOneGpu{});
}
TEST_CASE("replicas on one GPU train the small CNN as Keras does") {
  const testing::TestGpu gpu;
  golden::meets_small_cnn<Cuda>(ReplicasOnOneGpu{});
}
