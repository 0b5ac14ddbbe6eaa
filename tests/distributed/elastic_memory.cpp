/// The memory of an elastic job's recovery: a host that just fits the training must not lose its
/// survivors as well.
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "distributed/processes.hpp"
#include "lockstep/cpu.hpp"
#include "lockstep/elastic.hpp"
#include "lockstep/lockstep.hpp"
#include "support/peak_memory.hpp"

using namespace distributed;

namespace {

struct Wide : ls::Sequential<ls::Input<3000>, ls::Dense<2000>, ls::Dense<2>> {};
constexpr std::int64_t weights = 4 * (3000 * 2000 + 2000 + 2000 * 2 + 2), state = 3 * weights;

/// Kills the process of rank 2 in a hook, and measures in the others what the recovery needs.
struct Measures : ls::Callback {
  explicit Measures(Here& here) : here_(here) {}
  void on_train_batch_end(std::size_t, const ls::Logs&) override {
    const std::uint64_t step = ++here_.report.steps;
    if (step == 3 && here_.rank == 2) ::kill(::getpid(), SIGKILL);
    if (step == 3) before_ = testing::begin_peak();
    if (step == 4 && before_) peak = testing::memory_of_this_process("VmHWM") - *before_;
  }
  std::int64_t peak = 0;

 private:
  Here& here_;
  std::optional<std::int64_t> before_;
};

}  // namespace

TEST_CASE("a recovery needs memory for the state of the last step and one buffer") {
  Processes job(3, [](Here& here) {
    ls::Model model{
        Wide{},
        ls::MultiWorkerMirrored<ls::Cpu, ls::Tcp, ls::Elastic>{.elastic = {.min_workers = 2}},
        ls::MeanSquaredError{}, ls::Adam{}};
    const std::vector<float> x(3000 * 48, 0.5f), y(2 * 48, 1.0f);
    const auto measures = std::make_shared<Measures>(here);
    model.fit(ls::tensors(x, ls::shape(3000), y, ls::shape(2)) | ls::batch(12),
              {.epochs = 2, .callbacks = {measures}, .progress = ls::ProgressStyle::none});
    here.give({static_cast<double>(measures->peak)});
  });
  REQUIRE(job.all_end());
  for (const std::size_t rank : {0u, 1u}) {
    INFO(job.logs());
    REQUIRE(job.end(rank).status == 0);
    // The rest is code that runs for the first time, and buffers of the new connections.
    CHECK(job.numbers(rank).at(0) < static_cast<double>(state + weights + (18 << 20)));
  }
}
