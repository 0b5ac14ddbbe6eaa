#include "lockstep/cuda.hpp"
#include "distributed/golden.hpp"
#include "golden/mirrored.hpp"
#include "lockstep/reference.hpp"
#include "support/forked_gpu.hpp"

using namespace distributed;
using ls::Cuda;

namespace {

/// Two processes of one or two replicas: as Keras, as one replica, and all with the same bits.
struct WorkersOnOneGpu {
  template <class Train>
  void operator()(const golden::GoldenFile& file, const std::string& prefix, const Train& train,
                  const golden::Limits& limits, bool) const {
    if (prefix != "sgd/" && prefix != "uneven/") return;
    // Not on the GPU: this process forks. Only its sizes are asked for.
    const golden::Trained like = train(ls::OneDevice<ls::Reference<float>>{});
    Processes alone(
        1, [&](Here& here) { here.give(flat(train(ls::OneDevice<Cuda>{}))); }, 300s);
    all_give_the_same(alone);
    const golden::Trained one = trained_from(alone.numbers(0), like);
    for (const std::size_t replicas : {1, 2}) {
      CAPTURE(prefix, replicas);
      Processes job(
          2,
          [&](Here& here) {
            here.give(
                flat(train(ls::MultiWorkerMirrored<Cuda>{.replicas = replicas, .on = "/gpu:0"})));
          },
          300s);
      all_give_the_same(job);
      const golden::Trained many = trained_from(job.numbers(0), like);
      golden::is_as_keras(many, file, prefix, limits);
      golden::MirroredCheck<Cuda>::is_as_one(many, one, false);
      CHECK(job.has_no_orphans());
    }
  }
};

}  // namespace

TEST_CASE("two workers of one or two replicas on one GPU train the small CNN as Keras does") {
  const testing::ForkedGpu gpu;
  INFO((gpu.is_real() ? "on the GPU" : "on the host in the place of a GPU"));
  golden::meets_small_cnn<Cuda>(WorkersOnOneGpu{});
}
