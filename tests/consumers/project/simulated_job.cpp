/// \file
/// A user's test of a job of three workers, one of which dies, over a simulated network. The seed decides everything.
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <lockstep/cluster.hpp>
#include <lockstep/lockstep.hpp>
#include <lockstep/reference.hpp>
#include <lockstep/testing.hpp>

namespace ls = lockstep;
using namespace std::chrono_literals;

struct Line : ls::Sequential<ls::Input<1>, ls::Dense<1>> {};

struct Outcome {
  std::array<bool, 3> name_lost{};  // whether a worker reports the loss of rank 2
  std::uint64_t digest = 0;         // of all packets and their times
  bool operator==(const Outcome&) const = default;
};

Outcome run(std::uint64_t seed) {
  Outcome outcome;
  const auto report = ls::testing::run_workers(
      3,
      [&](ls::testing::Worker& worker) {
        const std::vector<float> x{0, 1, 2, 3, 4, 5}, y{1, 3, 5, 7, 9, 11};
        ls::Model model{
            Line{},
            ls::MultiWorkerMirrored<ls::Reference<float>>{.environment = worker.environment()},
            ls::MeanSquaredError{}, ls::SGD{.learning_rate = 0.01}};
        try {
          model.fit(ls::tensors(x, ls::shape(1), y, ls::shape(1)) | ls::batch(6),
                    {.epochs = 100'000, .progress = ls::ProgressStyle::none});
        } catch (const ls::PeerLost& e) {
          outcome.name_lost[worker.rank()] = e.rank() == 2;
        }
      },
      {.seed = seed, .latency = 5ms, .jitter = 1ms, .faults = {{2s, ls::testing::kill(2)}}});
  outcome.digest = report.digest;
  return outcome;
}

int main() {
  const Outcome first = run(7);
  const bool named = first.name_lost == std::array{true, true, false};
  std::printf(
      "survivors name the lost worker: %s, same seed, same run: %s, another seed, another run: %s\n",
      named ? "yes" : "no", run(7) == first ? "yes" : "no", run(8) == first ? "no" : "yes");
}
