#include "lockstep/cuda.hpp"

#include <algorithm>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <vector>

#include "distributed/golden.hpp"
#include "golden/mirrored.hpp"
#include "lockstep/reference.hpp"
#include "support/forked_gpu.hpp"

using namespace distributed;
using ls::Cuda;

namespace {

/// Two processes of one or two replicas: equal to Keras, to one replica, and bitwise to each other.
struct WorkersOnOneGpu {
  template <class Train>
  void operator()(const golden::GoldenFile& file, const std::string& prefix, const Train& train,
                  const golden::Limits& limits, bool) const {
    if (prefix != "sgd/" && prefix != "uneven/") return;
    // Not on the GPU, because this process forks. Only the sizes are used.
    const golden::Trained like = train(ls::OneDevice<ls::Reference<float>>{});
    Processes alone(1, [&](Here& here) { here.give(flat(train(ls::OneDevice<Cuda>{}))); }, 300s);
    all_give_the_same(alone);
    const golden::Trained one = trained_from(alone.numbers(0), like);
    for (const std::size_t replicas : {1u, 2u}) {
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

struct Words : ls::Sequential<ls::Input<3>, ls::Embedding<4, 2>, ls::Flatten, ls::Dense<1>> {};

}  // namespace

TEST_CASE("two workers of one or two replicas on one GPU train the small CNN as Keras does") {
  const testing::ForkedGpu gpu;
  INFO((gpu.is_real() ? "on the GPU" : "on the host instead of a GPU"));
  golden::meets_small_cnn<Cuda>(WorkersOnOneGpu{});
}

TEST_CASE("a job whose replicas are on GPUs cannot be elastic") {
  const ls::MultiWorkerMirrored<Cuda> strategy{
      .environment = [](const std::string& name) -> std::optional<std::string> {
        if (name == "LOCKSTEP_MIN_WORKERS") return "1";
        return std::nullopt;
      }};
  CHECK_THROWS_WITH(
      strategy.open(),
      Catch::Matchers::StartsWith(
          "multi_worker_mirrored: LOCKSTEP_MIN_WORKERS needs replicas on CPUs that exchange"));
}

TEST_CASE("an index that an Embedding does not have ends the job, and all ranks report where") {
  const testing::ForkedGpu gpu;
  Processes job(2, [](Here&) {
    ls::Model model{Words{}, ls::MultiWorkerMirrored<Cuda>{.replicas = 1, .on = "/gpu:0"},
                    ls::MeanSquaredError{}, ls::SGD{}};
    // The second example of a batch belongs to the second worker.
    model.fit(ls::tensors(std::vector<float>{0, 1, 2, 3, 2, 9}, ls::shape(3),
                          std::vector<float>{1, 2}, ls::shape(1)) |
                  ls::batch(2),
              {.epochs = 2, .progress = ls::ProgressStyle::none});
  });
  REQUIRE(job.all_end());
  CAPTURE(job.logs());
  const std::string failed = job.report(1).what, other = job.report(0).what;
  CHECK(job.report(1).outcome == Outcome::error);
  CHECK(failed.find("indices must be whole numbers from 0 to 3; check the data") !=
        std::string::npos);
  CHECK(job.report(0).outcome == Outcome::peer_lost);
  CHECK(job.report(0).lost_rank == 1);
  CHECK(other.find(failed) != std::string::npos);
}

TEST_CASE("workers share the visible GPUs, but a worker that names one has one replica") {
  const testing::ForkedGpu gpu;
  for (const bool names : {false, true}) {
    CAPTURE(names);
    Processes job(2, [&](Here& here) {
      ls::MultiWorkerMirrored<Cuda> strategy;
      if (names) strategy.on = Cuda{"/gpu:0"};
      const auto session = strategy.open();
      here.give({static_cast<double>(session.local_replicas()),
                 static_cast<double>(session.replicas()), static_cast<double>(Cuda::available())});
    });
    REQUIRE(job.all_end());
    CAPTURE(job.logs());
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const std::vector<double> numbers = job.numbers(rank);
      REQUIRE(numbers.size() == 3);
      const double each = names ? 1 : std::max(1.0, std::floor(numbers[2] / 2));
      CHECK(numbers[0] >= each);
      CHECK(numbers[1] == (names || numbers[2] < 2 ? 2 : numbers[2]));
    }
  }
}
