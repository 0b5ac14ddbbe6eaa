#include "lockstep/testing/run_workers.hpp"

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <thread>
#include <vector>

#include "lockstep/cluster.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;
using namespace std::chrono_literals;

TEST_CASE("sleeps take virtual time") {
  std::vector<std::chrono::nanoseconds> ends(3);
  const auto report = ls::testing::run_workers(3, [&](ls::testing::Worker& worker) {
    std::this_thread::sleep_for(worker.rank() * 100s);
    ends[worker.rank()] = worker.time();
  });
  CHECK(ends[0] < 1ms);
  CHECK((ends[1] >= 100s && ends[1] < 101s));
  CHECK((ends[2] >= 200s && ends[2] < 201s));
  CHECK((report.duration >= 200s && report.duration < 201s));
}

struct Net : ls::Sequential<ls::Input<4>, ls::Dense<8>, ls::ReLU, ls::Dense<3>> {};

auto data() {
  std::vector<float> x(48 * 4);
  std::vector<std::int32_t> y(48);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 101) / 101;
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<std::int32_t>(i % 3);
  return ls::tensors(x, ls::shape(4), y);
}

TEST_CASE("two workers train") {
  std::vector<std::vector<float>> weights(2);
  const auto report = ls::testing::run_workers(2, [&](ls::testing::Worker& worker) {
    ls::Model model{Net{}, ls::MultiWorkerMirrored<ls::Reference<float>>{.environment = worker.environment()},
                    ls::SparseCategoricalCrossentropy{.from_logits = true}, ls::SGD{.learning_rate = 0.1f}};
    model.fit(data() | ls::batch(12), {.epochs = 2});
    weights[worker.rank()] = model.weights("dense_1/kernel");
  });
  CHECK(weights[0] == weights[1]);
  WARN(report.duration.count() << " " << report.packets << " " << report.switches << " " << report.digest);
}

TEST_CASE("many", "[.many]") {
  const char* n = std::getenv("N");
  const std::size_t count = n ? std::stoul(n) : 64;
  for (int i = 0; i < 1; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const auto report = ls::testing::run_workers(count, [&](ls::testing::Worker& worker) {
      ls::Model model{Net{}, ls::MultiWorkerMirrored<ls::Reference<float>>{.environment = worker.environment()},
                      ls::SparseCategoricalCrossentropy{.from_logits = true}, ls::SGD{.learning_rate = 0.1f}};
      if (worker.rank() == 0) WARN("made " << std::chrono::duration<double>(worker.time()).count());
      model.fit(data() | ls::batch(12), {.epochs = 2, .callbacks = {}});
    }, {.seed = 1});
    const auto took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    WARN(took << " s; virtual " << report.duration.count() << " packets " << report.packets << " switches " << report.switches << " digest " << report.digest);
  }
}
