/// Parameter servers in processes against a simulation of workers and servers in NumPy, in float64.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <string>
#include <vector>

#include "distributed/processes.hpp"
#include "golden/parameter_server.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/parameter_server.hpp"
#include "lockstep/reference.hpp"
#include "support/run_kernel.hpp"

using namespace distributed;

namespace {

using Double = ls::Reference<double>;

struct Tasks {
  std::size_t workers, servers;
  bool chief;
};

/// Every process must have the weights of the file after each step.
template <class O>
void check_run(const golden::GoldenFile& file, const std::string& name, const O& optimizer,
               const Tasks& tasks) {
  CAPTURE(name, tasks.workers, tasks.servers, tasks.chief);
  const auto batches = golden::served_batches(file);
  const std::vector<double> init = file.values("init"), expected = file.values(name + "/weights");
  Processes job(tasks.workers + tasks.servers + (tasks.chief ? 1u : 0u),
                [&](Here& here) {
                  ls::Model model{golden::ServedNet{}, ls::ParameterServer<Double>{},
                                  ls::SparseCategoricalCrossentropy{.from_logits = true},
                                  optimizer};
                  golden::set_served_weights(model, init);
                  std::vector<double> found;
                  for (const auto& batch : batches) {
                    model.train_on_batch(ls::global_batch, batch.x, batch.labels);
                    const auto weights = golden::served_weights(model);
                    found.insert(found.end(), weights.begin(), weights.end());
                  }
                  here.give(found);
                },
                60s, 1, {tasks.chief, tasks.servers});
  REQUIRE(job.all_end());
  for (std::size_t rank = 0; rank < job.size(); ++rank) {
    CAPTURE(rank, job.report(rank).what.text, job.logs());
    REQUIRE(job.report(rank).outcome == Outcome::done);
    const std::vector<double> found = job.numbers(rank);
    REQUIRE(found.size() == expected.size());
    for (std::size_t step = 0; step < batches.size(); ++step) {
      CAPTURE(step);
      const auto row = [&](const std::vector<double>& all) {
        const auto from = all.begin() + static_cast<std::ptrdiff_t>(step * init.size());
        return std::vector<double>(from, from + static_cast<std::ptrdiff_t>(init.size()));
      };
      CHECK(testing::relative_error(row(found), row(expected)) < golden::tolerance<Double>);
    }
  }
}

}  // namespace

TEST_CASE("parameter servers train as a simulation in NumPy does") {
  const golden::GoldenFile file("parameter_server");
  for (const Tasks& tasks : {Tasks{1, 1, false}, Tasks{3, 2, false}, Tasks{2, 3, true}}) {
    check_run(file, "adam", ls::Adam{.learning_rate = 0.01}, tasks);
    check_run(file, "momentum", ls::SGD{.learning_rate = 0.1, .momentum = 0.9}, tasks);
    check_run(file, "clipped", ls::Adam{.learning_rate = 0.01, .with = {.global_clipnorm = 0.2}},
              tasks);
    check_run(file, "averaged",
              ls::SGD{.learning_rate = 0.1,
                      .momentum = 0.9,
                      .with = {.use_ema = true, .ema_momentum = 0.8, .ema_overwrite_frequency = 3}},
              tasks);
  }
}
