#include "lockstep/training/elastic/elastic_runs.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "support/elastic_workers.hpp"
#include "unit/training/mirrored_support.hpp"
#include "unit/training/model_support.hpp"

namespace {

namespace ls = lockstep;
using Float = ls::Reference<float>;
using testing::ElasticJob;
using testing::Fault;

/// With all that a step changes: running statistics, random draws, penalties.
struct Full : ls::Sequential<ls::Input<2>, ls::Dense<6>, ls::BatchNormalization<>, ls::ReLU,
                             ls::Dropout<ls::rate(0.4f)>,
                             ls::Dense<3, ls::kernel_regularizer(ls::L2{0.01})>> {};

/// Records the hooks of a worker that has been there from the start.
struct Hooks : ls::Callback {
  std::vector<std::size_t> batches;
  std::vector<double> losses;
  std::vector<int> epochs;
  int train_begin = 0, train_end = 0;
  void on_train_begin(const ls::Logs&) override { ++train_begin; }
  void on_train_end(const ls::Logs&) override { ++train_end; }
  void on_train_batch_end(std::size_t batch, const ls::Logs& logs) override {
    batches.push_back(batch);
    losses.push_back(logs["loss"]);
  }
  void on_epoch_end(int epoch, const ls::Logs&) override { epochs.push_back(epoch); }
};
/// Changes the rate in one worker, after each epoch, depending on what it was.
struct Decay : ls::Callback {
  std::size_t worker = 0;
  bool each = false;
  void on_epoch_end(int, const ls::Logs&) override { control().set_learning_rate(control().learning_rate() * 0.5); }
};

struct Found {
  std::string digest;
  std::map<std::string, std::vector<double>> history;
  std::vector<int> epochs;
  std::vector<double> tested, predicted;
  std::uint64_t steps = 0;
  double rate = 0;
  bool operator==(const Found&) const = default;
};

struct Plan {
  std::uint64_t steps_per_execution = 1;
  bool has_validation = true;
  std::uint64_t verify_every = 0;
  std::optional<std::uint64_t> steps_per_epoch{};
};

template <class Strategy>
Found train(const Strategy& strategy, const Plan& plan, const std::shared_ptr<Hooks>& hooks) {
  const ls::Adam adam{.learning_rate = 0.01,
                      .with = {.use_ema = true, .gradient_accumulation_steps = 2}};
  ls::Model m{Full{}, ls::Seed{7}, strategy, replicas::crossentropy, adam, ls::Accuracy{}};
  const auto data = line::classes(40);
  auto options = line::quiet(3);
  options.callbacks = {hooks, std::make_shared<Decay>(),
                       ls::EarlyStopping{.monitor = "loss", .patience = 5}};
  options.steps_per_execution = plan.steps_per_execution;
  options.verify_every = plan.verify_every;
  options.steps_per_epoch = plan.steps_per_epoch;
  const auto train = data | ls::shuffle(16) | ls::repeat(4) | ls::batch(16);
  const auto once = data | ls::shuffle(16) | ls::batch(16);
  const auto test = data | ls::batch(20);
  ls::History history;
  if (plan.steps_per_epoch)
    history = plan.has_validation ? m.fit(train, test, options) : m.fit(train, options);
  else
    history = plan.has_validation ? m.fit(once, test, options) : m.fit(once, options);
  Found found;
  for (const std::string& name : history.names()) found.history[name] = history[name];
  found.epochs = history.epoch;
  for (const auto& [name, value] : m.evaluate(test)) found.tested.push_back(value);
  const auto predicted = m.predict(test);
  for (const auto v : predicted.elements()) found.predicted.push_back(static_cast<double>(v));
  found.digest = m.weights_sha256();
  found.steps = m.steps();
  found.rate = m.learning_rate();
  return found;
}

struct Outcome {
  std::vector<Found> found;
  std::vector<std::shared_ptr<Hooks>> hooks;
  std::vector<bool> have_ended;
  std::shared_ptr<ElasticJob> job;
};

Outcome run(std::size_t founders, std::size_t workers, const Plan& plan, std::vector<Fault> faults,
            std::size_t shards = 8, std::size_t replicas = 1,
            const std::vector<std::size_t>& joins_at = {}) {
  Outcome outcome;
  outcome.job = std::make_shared<ElasticJob>(founders, shards, std::move(faults), replicas);
  outcome.found.resize(workers);
  for (std::size_t w = 0; w < workers; ++w) outcome.hooks.push_back(std::make_shared<Hooks>());
  outcome.have_ended =
      testing::run_elastic<Float>(outcome.job, workers, [&](const auto& worker) {
        if (worker.worker >= founders) outcome.job->wait_for(joins_at[worker.worker - founders]);
        outcome.found[worker.worker] = train(worker, plan, outcome.hooks[worker.worker]);
      });
  return outcome;
}

/// Compares all founders that reached their end with the quiet run.
void compare(const Outcome& outcome, std::size_t founders, const Found& quiet,
             const Hooks& quiet_hooks) {
  for (std::size_t w = 0; w < founders; ++w) {
    if (!outcome.have_ended[w]) continue;
    INFO("worker " << w);
    const Found& found = outcome.found[w];
    CHECK(found.digest == quiet.digest);
    CHECK(found.history == quiet.history);
    CHECK(found.epochs == quiet.epochs);
    CHECK(found.tested == quiet.tested);
    CHECK(found.predicted == quiet.predicted);
    CHECK(found.steps == quiet.steps);
    CHECK(found.rate == quiet.rate);
    const Hooks& hooks = *outcome.hooks[w];
    CHECK(hooks.batches == quiet_hooks.batches);
    CHECK(hooks.losses == quiet_hooks.losses);
    CHECK(hooks.epochs == quiet_hooks.epochs);
    CHECK(hooks.train_begin == 1);
    CHECK(hooks.train_end == 1);
  }
}

/// Sweeps a fault of `victim` over every exchange of a run.
void sweep(const Plan& plan, std::size_t victim, Fault::Kind kind, std::size_t stride = 1) {
  const auto quiet_hooks = std::make_shared<Hooks>();
  const Found quiet =
      train(ls::OneDevice<Float>{.virtual_shards = 8}, plan, quiet_hooks);
  const Outcome calm = run(4, 4, plan, {});
  compare(calm, 4, quiet, *quiet_hooks);
  const std::size_t last = calm.job->exchanges(victim);
  for (std::size_t at = 1; at <= last; at += stride) {
    INFO("exchange " << at << " of " << last);
    const Outcome outcome = run(4, 4, plan, {{victim, at, kind}});
    compare(outcome, 4, quiet, *quiet_hooks);
    CHECK(outcome.have_ended[(victim + 1) % 4]);
  }
}

}  // namespace

TEST_CASE("a worker dies at any exchange, and the others get the bits of a quiet run") {
  sweep({}, 2, Fault::Kind::dies_before);
}
TEST_CASE("dies after") { sweep({}, 2, Fault::Kind::dies_after); }
TEST_CASE("chief dies before") { sweep({}, 0, Fault::Kind::dies_before); }
TEST_CASE("fails after") { sweep({}, 1, Fault::Kind::fails_after); }
TEST_CASE("fails after, chief") { sweep({}, 0, Fault::Kind::fails_after); }
TEST_CASE("executions of 3 steps fail after") { sweep({.steps_per_execution = 3, .verify_every = 1}, 1, Fault::Kind::fails_after); }
TEST_CASE("executions of 2 steps, chief dies") { sweep({.steps_per_execution = 2, .has_validation = false, .verify_every = 1}, 0, Fault::Kind::dies_before); }
TEST_CASE("steps per epoch") { sweep({.steps_per_execution = 2, .steps_per_epoch = 4}, 0, Fault::Kind::dies_after); }
TEST_CASE("no validation fails after") { sweep({.has_validation = false, .verify_every = 2}, 3, Fault::Kind::fails_after); }

TEST_CASE("random faults and workers that join") {
  const char* const from = std::getenv("SEED");
  const char* const n = std::getenv("SEEDS");
  const std::uint32_t first = from ? static_cast<std::uint32_t>(std::atoi(from)) : 1;
  const std::uint32_t count = n ? static_cast<std::uint32_t>(std::atoi(n)) : 60;
  std::map<std::size_t, std::pair<Found, std::shared_ptr<Hooks>>> quiet;
  std::size_t generations = 0, joined = 0;
  for (std::uint32_t seed = first; seed < first + count; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t n2) { return static_cast<std::size_t>(random() % n2); };
    const std::size_t which = below(4);
    const Plan plan = which == 0   ? Plan{}
                      : which == 1 ? Plan{.steps_per_execution = 3, .verify_every = 1}
                      : which == 2 ? Plan{.has_validation = false}
                                   : Plan{.steps_per_execution = 2, .steps_per_epoch = 4};
    auto& [expected, hooks] = quiet[which];
    if (!hooks) {
      hooks = std::make_shared<Hooks>();
      expected = train(ls::OneDevice<Float>{.virtual_shards = 8}, plan, hooks);
    }
    std::vector<Fault> faults;
    std::vector<std::size_t> joins;
    const std::size_t deaths = below(4), failures = below(3), newcomers = below(4);
    const std::size_t spared = below(4), together = below(3);
    std::size_t at = 1 + below(45);
    for (std::size_t i = 0; i < deaths; ++i) {
      if (together != 0) at = 1 + below(45);
      const std::size_t worker = below(4 + newcomers);
      if (worker != spared)
        faults.push_back({worker, at, below(2) ? Fault::Kind::dies_before : Fault::Kind::dies_after});
    }
    for (std::size_t i = 0; i < failures; ++i)
      faults.push_back({below(4), 1 + below(45), Fault::Kind::fails_after});
    for (std::size_t i = 0; i < newcomers; ++i) joins.push_back(1 + below(150));
    INFO("seed " << seed);
    const Outcome outcome = run(4, 4 + newcomers, plan, faults, 8, 1, joins);
    compare(outcome, 4, expected, *hooks);
    CHECK(outcome.have_ended[spared]);
    generations += outcome.job->generations();
    for (std::size_t w = 4; w < 4 + newcomers; ++w) {
      if (!outcome.have_ended[w]) continue;
      ++joined;
      INFO("newcomer " << w);
      const Found& found = outcome.found[w];
      CHECK(found.digest == expected.digest);
      CHECK(found.steps == expected.steps);
      if (!found.history.empty()) CHECK(found.history == expected.history);
      if (!found.tested.empty()) CHECK(found.tested == expected.tested);
      if (!found.predicted.empty()) CHECK(found.predicted == expected.predicted);
      CHECK(outcome.hooks[w]->train_begin == outcome.hooks[w]->train_end);
    }
  }
  WARN(generations << " generations, " << joined << " workers joined");
}
