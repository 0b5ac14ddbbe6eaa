#include "golden/mirrored.hpp"
#include "golden/training.hpp"
#include "lockstep/cuda.hpp"
#include "support/test_gpu.hpp"

using lockstep::Cuda;

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

TEST_CASE("replicas on one GPU train the tutorial's line as Keras does") {
  const testing::TestGpu gpu;
  golden::meets_linear_regression<Cuda>(ReplicasOnOneGpu{});
}
TEST_CASE("replicas on one GPU train the small CNN as Keras does") {
  const testing::TestGpu gpu;
  golden::meets_small_cnn<Cuda>(ReplicasOnOneGpu{});
}
