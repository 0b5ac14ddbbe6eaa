/// Training steps of the program's own in jobs of processes: the bits of one device, and losses.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <string>
#include <vector>

#include "distributed/processes.hpp"
#include "lockstep/cpu.hpp"
#include "lockstep/elastic.hpp"
#include "lockstep/lockstep.hpp"
#include "unit/training/mirrored_support.hpp"

using namespace distributed;

namespace {

constexpr std::size_t shards = 8;

struct Net : ls::Sequential<ls::Input<2>, ls::Dense<16>, ls::BatchNormalization<>, ls::ReLU,
                            ls::Dropout<ls::rate(0.4f)>, ls::Dense<3>> {};

auto data() { return line::classes(48) | ls::shuffle(16) | ls::batch(16); }

template <class Strategy>
auto model_on(const Strategy& strategy) {
  return ls::Model{Net{}, strategy, replicas::crossentropy, ls::Adam{.learning_rate = 0.01}};
}

/// One digest for each way to train; `kill(step)` is called in the midst of the steps of a fit.
template <class Strategy, class Kill>
std::string fit_digest(const Strategy& strategy, const Kill& kill) {
  auto model = model_on(strategy);
  model.fit(data(), line::quiet(2), [&](const auto& batch) {
    auto gradients = model.gradients_of(batch);
    kill(model.steps());
    gradients *= 0.5 / std::max(1.0, gradients.norm());
    model.apply(gradients);
  });
  return model.weights_sha256();
}
template <class Strategy, class Memory>
std::string loop_digest(const Strategy& strategy, const Memory& from_memory) {
  auto model = model_on(strategy);
  for (const auto& batch : model.batches(data())) model.apply(model.gradients_of(batch));
  from_memory(model);
  return model.weights_sha256();
}

std::vector<double> numbers(const std::string& digest) { return {digest.begin(), digest.end()}; }

/// 20 examples in memory.
const std::vector<float> x = [] {
  std::vector<float> values;
  for (int i = 0; i < 40; ++i) values.push_back(static_cast<float>(i % 7) / 4 - 1);
  return values;
}();
const std::vector<std::int32_t> y = [] {
  std::vector<std::int32_t> labels;
  for (int i = 0; i < 20; ++i) labels.push_back(i % 3);
  return labels;
}();

}  // namespace

TEST_CASE("own steps in two and four processes have the bits of one device") {
  const ls::OneDevice<ls::Cpu> alone{.on = {.threads = 1}, .virtual_shards = shards};
  const auto expected = numbers(fit_digest(alone, [](std::uint64_t) {}));
  const auto from_loop =
      numbers(loop_digest(alone, [](auto& model) { model.train_on_batch(x, y); }));
  for (const std::size_t workers : {2u, 4u}) {
    Processes job(workers, [&](Here& here) {
      const ls::MultiWorkerMirrored<ls::Cpu> strategy{.virtual_shards = shards};
      auto all = numbers(fit_digest(strategy, [](std::uint64_t) {}));
      const auto whole = numbers(
          loop_digest(strategy, [](auto& model) { model.train_on_batch(ls::global_batch, x, y); }));
      const auto parts = numbers(loop_digest(strategy, [&](auto& model) {
        // 20 examples in 8 slices: the first four have three.
        const std::size_t first =
            workers == 2 ? 12 * here.rank : std::vector<std::size_t>{0, 6, 12, 16}[here.rank];
        const std::size_t next = workers == 2 ? (here.rank == 0 ? 12 : 20)
                                              : std::vector<std::size_t>{6, 12, 16, 20}[here.rank];
        model.train_on_batch(ls::local_batch, std::span(x).subspan(2 * first, 2 * (next - first)),
                             std::span(y).subspan(first, next - first));
      }));
      all.insert(all.end(), whole.begin(), whole.end());
      all.insert(all.end(), parts.begin(), parts.end());
      here.give(all);
    });
    REQUIRE(job.all_end());
    INFO(job.logs());
    auto wanted = expected;
    wanted.insert(wanted.end(), from_loop.begin(), from_loop.end());
    wanted.insert(wanted.end(), from_loop.begin(), from_loop.end());
    for (std::size_t rank = 0; rank < workers; ++rank) {
      REQUIRE(job.end(rank).status == 0);
      CHECK(job.numbers(rank) == wanted);
    }
  }
}

TEST_CASE(
    "an elastic job whose worker dies within a step of the program ends with the bits of none") {
  const auto expected =
      numbers(fit_digest(ls::OneDevice<ls::Cpu>{.on = {.threads = 1}, .virtual_shards = shards},
                         [](std::uint64_t) {}));
  for (const std::size_t victim : {0u, 2u}) {
    Processes job(3, [&](Here& here) {
      const ls::MultiWorkerMirrored<ls::Cpu, ls::Tcp, ls::Elastic> strategy{
          .virtual_shards = shards, .elastic = {.min_workers = 2}};
      here.give(numbers(fit_digest(strategy, [&](std::uint64_t step) {
        if (step == 3 && here.rank == victim) ::kill(::getpid(), SIGKILL);
      })));
    });
    REQUIRE(job.all_end());
    INFO(job.logs());
    for (std::size_t rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      REQUIRE(job.end(rank).status == 0);
      CHECK(job.numbers(rank) == expected);
    }
  }
}
