/// \file
/// The tutorials' CNN on a cluster of simulated workers in one process, one example per worker and
/// step on average: the time that a test needs. Prints, for each number of workers, the seconds of
/// the whole run and of its steps, and what the simulation did.
#include <fmt/format.h>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <lockstep/cluster.hpp>
#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>
#include <lockstep/testing.hpp>

#include "seed_step.hpp"

namespace ls = lockstep;
using namespace std::chrono_literals;

int main(int argc, char** argv) {
  CLI::App app{"seconds of a simulated cluster that trains the tutorials' CNN"};
  std::vector<std::size_t> workers{4, 16, 64};
  std::size_t steps = 100, batch = 64;
  std::string wire = "auto";
  app.add_option("--workers", workers);
  app.add_option("--steps", steps);
  app.add_option("--batch", batch, "of all workers");
  app.add_option("--wire", wire, "LOCKSTEP_WIRE");
  CLI11_PARSE(app, argc, argv);

  using Seconds = std::chrono::duration<double>;
  using Clock = std::chrono::steady_clock;
  fmt::print("{} steps, batch {}, LOCKSTEP_WIRE={}\n{:>7} {:>9} {:>10} {:>9} {:>9}\n", steps, batch,
             wire, "workers", "seconds", "virtual s", "packets", "switches");
  for (const std::size_t count : workers) {
    const auto begin = Clock::now();
    const ls::testing::Report report = ls::testing::run_workers(
        count,
        [&](ls::testing::Worker& worker) {
          ls::Model model{measure::Cnn{},
                          ls::MultiWorkerMirrored<ls::Cpu>{.on = {.threads = 1},
                                                           .environment = worker.environment()},
                          ls::SparseCategoricalCrossentropy{.from_logits = true},
                          ls::SGD{.learning_rate = 1e-3}};
          model.fit(measure::images(1024) | ls::batch(batch),
                    {.epochs = 1, .steps_per_epoch = steps, .progress = ls::ProgressStyle::none});
        },
        {.seed = 1, .variables = {{"LOCKSTEP_WIRE", wire}}});
    fmt::print("{:7} {:9.1f} {:10.3f} {:9} {:9}\n", count, Seconds(Clock::now() - begin).count(),
               Seconds(report.duration).count(), report.packets, report.switches);
    std::fflush(stdout);
  }
}
