#include "distributed/golden.hpp"
#include "lockstep/cuda.hpp"
#include "support/test_gpu.hpp"

using namespace distributed;
using ls::Cuda;

namespace {

/// Two processes of one or two replicas: as Keras, and all with the same bits.
struct WorkersOnOneGpu {
  template <class Train>
  void operator()(const golden::GoldenFile& file, const std::string& prefix, const Train& train,
                  const golden::Limits& limits, bool) const {
    if (prefix != "sgd/" && prefix != "uneven/") return;
    const golden::Trained one = train(ls::OneDevice<Cuda>{});
    for (const std::size_t replicas : {1, 2}) {
      CAPTURE(prefix, replicas);
      Processes job(
          2,
          [&](Here& here) {
            here.give(flat(train(ls::MultiWorkerMirrored<Cuda>{.replicas = replicas})));
          },
          300s);
      all_give_the_same(job);
      golden::is_as_keras(trained_from(job.numbers(0), one), file, prefix, limits);
      CHECK(job.has_no_orphans());
    }
  }
};

}  // namespace

TEST_CASE("two workers of one or two replicas on Cuda train the small CNN as Keras does") {
  if (testing::has_gpu()) SKIP("a process that knows its GPU cannot fork workers that use it");
  const testing::TestGpu gpu;
  golden::meets_small_cnn<Cuda>(WorkersOnOneGpu{});
}
