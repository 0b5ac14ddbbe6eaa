/// \file
/// The example of docs/testing.md: a test of a program that trains on several machines.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/cluster.hpp>
#include <lockstep/lockstep.hpp>
#include <lockstep/reference.hpp>
#include <lockstep/testing.hpp>

namespace ls = lockstep;
using namespace std::chrono_literals;

struct Net : ls::Sequential<ls::Input<4>, ls::Dense<8>, ls::ReLU, ls::Dense<3>> {};

/// The program's own function: the test changes the strategy, and may add callbacks.
template <class Strategy>
std::string train(const Strategy& strategy, int epochs,
                  std::vector<std::shared_ptr<ls::Callback>> callbacks = {}) {
  std::vector<float> features(4 * 96);
  std::vector<std::int32_t> labels(96);
  for (std::size_t i = 0; i < features.size(); ++i) features[i] = static_cast<float>(i % 7);
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i % 3);
  ls::Model model{Net{}, strategy, ls::SparseCategoricalCrossentropy{.from_logits = true},
                  ls::SGD{.learning_rate = 0.1f}};
  model.fit(
      ls::tensors(features, ls::shape(4), labels) | ls::batch(12),
      {.epochs = epochs, .callbacks = std::move(callbacks), .progress = ls::ProgressStyle::none});
  return model.weights_sha256();
}

/// Gives each step 10 ms of virtual time.
struct StepTime : ls::Callback {
  explicit StepTime(const ls::testing::Worker& its_worker) : worker(its_worker) {}
  void on_train_batch_end(std::size_t, const ls::Logs&) override { worker.compute(10ms); }
  const ls::testing::Worker& worker;
};

TEST_CASE("8 machines train the model of 8 replicas, over a slow network") {
  using Strategy = ls::MultiWorkerMirrored<ls::Reference<float>>;
  std::vector<std::string> weights(8);
  ls::testing::run_workers(8,
                           [&](ls::testing::Worker& worker) {
                             weights[worker.rank()] =
                                 train(Strategy{.environment = worker.environment()}, 2);
                           },
                           {.seed = 7, .latency = 20ms, .jitter = 5ms, .loss = 0.01});

  const std::string expected = train(ls::Mirrored<ls::Reference<float>>{.replicas = 8}, 2);
  CHECK(std::all_of(weights.begin(), weights.end(), [&](const auto& w) { return w == expected; }));
}

TEST_CASE("all workers learn within 1 s that rank 2 has died") {
  using Strategy = ls::MultiWorkerMirrored<ls::Reference<float>>;
  std::size_t reports = 0;
  ls::testing::run_workers(4,
                           [&](ls::testing::Worker& worker) {
                             try {
                               train(Strategy{.environment = worker.environment()}, 1000,
                                     {std::make_shared<StepTime>(worker)});
                             } catch (const ls::PeerLost& e) {
                               CHECK(e.rank() == 2);
                               CHECK(worker.time() <= 6s);
                               ++reports;
                             }
                           },
                           {.faults = {{5s, ls::testing::kill(2)}}});
  CHECK(reports == 3);
}
