/// Networks, among them GPTs, whose workers divide the optimizer's buffers and are killed again and again, the chief
/// included: the weights have the bits of a single process that nothing disturbs.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "distributed/disturbed_job.hpp"
#include "distributed/processes.hpp"
#include "lockstep/cpu.hpp"
#include "lockstep/elastic.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/sharded.hpp"
#include "support/gpt.hpp"

using namespace distributed;

namespace {

template <class D>
using Elastic = ls::MultiWorkerMirrored<D, ls::Tcp, ls::Elastic>;

struct Small : testing::gpt::Gpt<2, 4, 64, 64, 8> {};
struct Large : testing::gpt::Gpt<8, 5, 320, 1000, 16> {};
struct Matrices : ls::Sequential<ls::Input<4>, ls::Embedding<64, 16>, ls::Dense<32, ls::tanh>,
                                 ls::Dense<16, ls::tanh>, ls::Dense<24, ls::tanh>, ls::Dense<64>> {
};
static_assert(Small::trainable_count > 100'000 && Large::trainable_count > 10'000'000);

constexpr std::size_t workers = 4, shards = 8, digits = 64;  // of a digest
constexpr std::uint64_t steps_of_epoch = 20;

struct Plan {
  std::size_t kills;
  std::uint64_t each;  ///< steps from one kill to the next, at least
  int epochs;
  milliseconds pause{0};  ///< of a worker after each step
  std::uint64_t verify_every = 0;
};

/// Sequences in which the next token follows from the last one and the place.
template <class Net>
auto sentences() {
  constexpr auto steps = static_cast<std::size_t>(Net::input_shape[0]);
  constexpr auto words = static_cast<std::size_t>(Net::output_shape.channels());
  std::vector<float> x;
  std::vector<std::int32_t> y;
  for (std::size_t i = 0; i < shards * steps_of_epoch; ++i) {
    std::size_t token = 7 * i % words;
    for (std::size_t t = 0; t < steps; ++t) {
      x.push_back(static_cast<float>(token));
      token = (3 * token + t + i % 5) % words;
      y.push_back(static_cast<std::int32_t>(token));
    }
  }
  return ls::tensors(x, Net::input_shape, y, Net::input_shape);
}

/// Reports the number of the last step, and who is the chief.
struct Counts : ls::Callback {
  Counts(Here& here, milliseconds pause) : here_(here), pause_(pause) {}
  void on_epoch_begin(int epoch, const ls::Logs&) override {
    before_ = steps_of_epoch * static_cast<std::uint64_t>(epoch);
  }
  void on_train_batch_end(std::size_t batch, const ls::Logs&) override {
    here_.report.is_chief = params().rank == 0;
    here_.report.steps = before_ + batch + 1;
    std::this_thread::sleep_for(pause_);
  }

 private:
  Here& here_;
  milliseconds pause_;
  std::uint64_t before_ = 0;
};

/// The losses of all epochs and of a final evaluation, and the digest of the weights.
template <class Net, class S, class O>
std::vector<double> trained(const S& strategy, const O& optimizer, const Plan& plan, Here* here) {
  ls::Model model{Net{}, ls::Seed{5}, strategy,
                  ls::SparseCategoricalCrossentropy{.from_logits = true}, optimizer};
  const auto data = sentences<Net>();
  ls::FitOptions options{.epochs = plan.epochs, .progress = ls::ProgressStyle::none};
  options.verify_every = plan.verify_every;
  if (here != nullptr) options.callbacks = {std::make_shared<Counts>(*here, plan.pause)};
  const auto history = model.fit(data | ls::shuffle(64) | ls::batch(shards), options);
  std::vector<double> all(history["loss"].begin(), history["loss"].end());
  all.push_back(model.evaluate(data | ls::batch(shards))["loss"]);
  const std::string digest = model.weights_sha256();
  all.insert(all.end(), digest.begin(), digest.end());
  return all;
}

/// Kills one worker after the other, each third time the chief, and starts it again.
template <class Net, class D, class O>
void check_kills(const D& device, const O& optimizer, const Plan& plan, std::uint32_t seed,
                 milliseconds limit) {
  CAPTURE(seed);
  const auto quiet = trained<Net>(ls::OneDevice<D>{.on = device, .virtual_shards = shards},
                                  optimizer, plan, nullptr);
  CHECK(quiet[quiet.size() - digits - 2] < quiet[0]);  // it learns
  DisturbedJob run(
      workers,
      [=](Here& here) {
        const Elastic<D> strategy{
            .on = device, .virtual_shards = shards, .elastic = {.min_workers = 2}};
        here.give(trained<Net>(strategy | ls::Sharded{}, optimizer, plan, &here));
      },
      seed, limit);
  std::vector<milliseconds> times;
  std::size_t chiefs = 0;
  while (run.kills() < plan.kills && !run.has_finished()) {
    std::vector<std::size_t> all;
    REQUIRE(run.job().until([&] {
      run.restart_all();
      std::uint64_t steps = 0;
      all = run.trained();
      for (const std::size_t r : all) steps = std::max(steps, run.job().report(r).steps.load());
      // Two stay: min_workers, and the copies of a share.
      return run.has_finished() || (all.size() > 2 && steps > plan.each * run.kills());
    }));
    if (run.has_finished()) break;
    std::this_thread::sleep_for(milliseconds(run.below(20)));  // within a step
    const auto chief = std::find_if(
        all.begin(), all.end(), [&](std::size_t r) { return run.job().report(r).is_chief.load(); });
    const bool is_chief = run.kills() % 3 == 0 && chief != all.end();
    const std::size_t victim = is_chief ? *chief : all[run.below(all.size())];
    if (run.job().report(victim).is_chief) ++chiefs;
    run.kill({victim});
    times.push_back(run.until_training());
  }
  run.check(quiet, digits);
  std::printf("%zu kills, %zu of the chief, in %llu steps\n", run.kills(), chiefs,
              static_cast<unsigned long long>(steps_of_epoch) *
                  static_cast<unsigned long long>(plan.epochs));
  print_times("training goes on after a kill", times);
  CHECK(run.kills() == plan.kills);
  CHECK(chiefs >= plan.kills / 3);
}

// Without threads of OpenMP, since processes are forked after the first run.
const ls::Cpu one_thread{.threads = 1};
const ls::AdamW adam{.learning_rate = 1e-3};

}  // namespace

TEST_CASE("a GPT whose slots are divided survives six kills with the bits of one process") {
  check_kills<Small>(one_thread, adam,
                     {.kills = 6, .each = 4, .epochs = 3, .pause = 50ms, .verify_every = 1}, 1,
                     60s);
}

TEST_CASE("shares of whole matrices survive four kills with the bits of one process") {
  // The table of the tokens is divided, so that a worker has parts in several places.
  const ls::Muon muon{.learning_rate = 1e-3, .with = {.use_ema = true}};
  check_kills<Matrices>(ls::Reference<float>{}, muon,
                        {.kills = 4, .each = 6, .epochs = 3, .pause = 50ms, .verify_every = 1}, 1,
                        60s);
}

TEST_CASE("a GPT of 10 million parameters survives 50 kills in 200 steps", "[.slow]") {
  const char* const from = std::getenv("LOCKSTEP_TEST_SEED");
  const auto seed = static_cast<std::uint32_t>(from != nullptr ? std::atoi(from) : 1);
  check_kills<Large>(one_thread, adam, {.kills = 50, .each = 3, .epochs = 10}, seed, 1500s);
}
