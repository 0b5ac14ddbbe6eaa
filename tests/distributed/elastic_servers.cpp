/// Elastic jobs of real processes with parameter servers: workers, servers and the chief are killed, and
/// some are started again. The others get the bits of one device, or all end with one sentence.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "distributed/processes.hpp"
#include "lockstep/cpu.hpp"
#include "lockstep/elastic.hpp"
#include "lockstep/heads.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/parameter_server.hpp"
#include "lockstep/reference.hpp"
#include "unit/training/mirrored_support.hpp"

using namespace distributed;
using Catch::Matchers::ContainsSubstring;

namespace {

using Float = ls::Reference<float>;
using Servers = ls::ParameterServer<Float, ls::Tcp, ls::Elastic>;

/// Two inputs and two outputs, without statistics that depend on the order of the batches.
struct Still : ls::Graph<ls::In<"a", 1>, ls::In<"b", 1>,
                         ls::Let<"h", ls::From<"a", "b">, ls::Concatenate, ls::Dense<8, ls::relu>>,
                         ls::Out<"kind", ls::From<"h">, ls::Dense<3>>,
                         ls::Out<"even", ls::From<"h">, ls::Dense<1>>> {};
struct Net : ls::Sequential<ls::Input<2>, ls::Dense<40>, ls::BatchNormalization<>, ls::ReLU,
                            ls::Dropout<ls::rate(0.4f)>, ls::Dense<3>> {};

/// Counts the steps, each of which takes a moment.
struct Count : ls::Callback {
  Count(Here* here, milliseconds pause) : here_(here), pause_(pause) {}
  void on_train_batch_end(std::size_t, const ls::Logs&) override {
    if (here_ == nullptr) return;
    ++here_->report.steps;
    std::this_thread::sleep_for(pause_);
  }
  Here* here_;
  milliseconds pause_;
};

struct Plan {
  int optimizer = 0;  ///< Adam; with a norm; momentum; averages and accumulation; a norm and it
  int epochs = 5;
  milliseconds pause{1};
  std::size_t replicas = 2;
  std::optional<std::uint64_t> staleness{};  ///< of asynchronous steps
  std::size_t backups = 0;                   ///< workers
  std::uint64_t each = 1;                    ///< steps of an execution
  /// A process that kills itself in a hook, the first time that so much of the training is done.
  enum class Hook { none, batch_begin, batch_end, test } hook = Hook::none;
  std::size_t victim = 0;
  std::optional<std::size_t> after{};  ///< calls of the hook
  milliseconds lingers{0};             ///< before it dies
  bool learns = true;
  bool handles_signals = false;
};

/// Examples of N.
template <class N>
auto examples(std::size_t count) {
  const auto all = line::classes(count);
  if constexpr (std::is_same_v<N, Net>) {
    return all;
  } else {
    const auto of = ls::collect(all);
    std::vector<float> y;
    for (const std::int32_t kind : of.targets)
      y.insert(y.end(), {static_cast<float>(kind), static_cast<float>(kind % 2)});
    return ls::tensors(of.features, ls::shape(2), y, ls::shape(2));
  }
}
template <class N, class S, class O>
auto model_on(const S& strategy, const O& optimizer) {
  using ls::BinaryCrossentropy, ls::SparseCategoricalCrossentropy;
  if constexpr (std::is_same_v<N, Net>)
    return ls::Model{N{}, ls::Seed{3}, strategy, replicas::crossentropy, optimizer, ls::Accuracy{}};
  else
    return ls::Model{
        N{},
        ls::Seed{3},
        strategy,
        ls::Losses{ls::Head<"kind", SparseCategoricalCrossentropy>{.loss = {.from_logits = true}},
                   ls::Head<"even", BinaryCrossentropy>{.loss = {.from_logits = true}}},
        optimizer,
        ls::On<"kind", ls::Accuracy>{}};
}

template <class N = Net, class S, class O>
std::vector<double> train(const S& strategy, const O& optimizer, const Plan& plan, Here* here) {
  auto m = model_on<N>(strategy, optimizer);
  auto options = line::quiet(plan.epochs);
  options.callbacks = {std::make_shared<Count>(here, plan.pause)};
  options.steps_per_execution = plan.each;
  const auto die_in = [&](Plan::Hook hook, std::size_t after) {
    return [=, passed = std::make_shared<std::size_t>(0)](auto&&...) {
      const bool dies = here != nullptr && plan.hook == hook && here->rank == plan.victim;
      if (!dies || (*passed)++ != plan.after.value_or(after) || !here->begin_fault()) return;
      std::this_thread::sleep_for(plan.lingers);
      ::raise(SIGKILL);
    };
  };
  options.callbacks.push_back(
      ls::LambdaCallback{.on_train_batch_begin = die_in(Plan::Hook::batch_begin, 4),
                         .on_train_batch_end = die_in(Plan::Hook::batch_end, 4),
                         .on_test_begin = die_in(Plan::Hook::test, 1)});
  std::optional<ls::SignalStop> stop;
  if (plan.handles_signals && here != nullptr) options.stop = stop.emplace().token();
  const auto data = examples<N>(160) | ls::shuffle(64) | ls::batch(16);
  const auto test = examples<N>(40) | ls::batch(20);
  const auto history = m.fit(data, test, options);
  std::vector<double> found;
  for (const std::string& name : history.names())
    if (name != "stale_max" && name != "copies_dropped")
      found.insert(found.end(), history[name].begin(), history[name].end());
  found.push_back(m.evaluate(test)["loss"]);
  if (!plan.learns) {
    // Whatever the order of its batches, an epoch has the same metrics, if each counts once.
    found = history["kind_accuracy"];
    found.push_back(m.update_counts().each_once || !plan.staleness ? 1 : 0);
  }
  const std::string digest = m.weights_sha256();
  found.insert(found.end(), digest.begin(), digest.end());
  return found;
}

template <class S>
std::vector<double> train(const S& strategy, const Plan& plan, Here* here = nullptr) {
  const ls::UpdateOptions averages{
      .use_ema = true, .ema_overwrite_frequency = 3, .gradient_accumulation_steps = 2};
  if (!plan.learns) return train<Still>(strategy, ls::SGD{.learning_rate = 1e-60}, plan, here);
  if (plan.optimizer == 1)
    return train(strategy, ls::Adam{.learning_rate = 0.01, .with = {.global_clipnorm = 0.1}}, plan,
                 here);
  if (plan.optimizer == 4)
    return train(strategy,
                 ls::Adam{.learning_rate = 0.01,
                          .with = {.global_clipnorm = 0.1, .gradient_accumulation_steps = 2}},
                 plan, here);
  if (plan.optimizer == 2)
    return train(strategy, ls::SGD{.learning_rate = 0.05, .momentum = 0.9}, plan, here);
  return train(
      strategy,
      ls::Adam{.learning_rate = 0.01, .with = plan.optimizer == 3 ? averages : ls::UpdateOptions{}},
      plan, here);
}

std::vector<double> alone(const Plan& plan) {
  return train(ls::OneDevice<Float>{.virtual_shards = 8}, plan);
}

struct Tasks {
  std::size_t workers = 2, servers = 3;
  bool chief = false;
  std::size_t count() const { return workers + servers + (chief ? 1u : 0u); }
};

/// A job whose processes the test kills and starts again.
class Disturbed {
 public:
  Disturbed(const Tasks& tasks, const Plan& plan, milliseconds limit = 60s)
      : job_(tasks.count(),
             [plan](Here& here) {
               here.give(train(Servers{.virtual_shards = 8,
                                       .replicas = plan.replicas,
                                       .asynchronous = plan.staleness.has_value(),
                                       .staleness = plan.staleness,
                                       .backup_workers = plan.backups,
                                       .elastic = {.min_workers = 1}},
                               plan, &here));
             },
             limit, 1, {tasks.chief, tasks.servers}),
        dead_(tasks.count()) {}

  Processes& job() { return job_; }
  /// Waits until the process has made this number of steps, or the job has ended.
  void until_step(std::size_t of, std::uint64_t steps) {
    REQUIRE(job_.until([&] { return job_.report(of).steps >= steps || job_.has_ended(of); }));
  }
  void kill(std::size_t rank) {
    job_.signal(rank, SIGKILL);
    REQUIRE(job_.until([&] { return job_.has_ended(rank); }));
    dead_[rank] = true;
  }
  /// The process has killed itself.
  void lose(std::size_t rank) { dead_[rank] = true; }
  void restart(std::size_t rank) {
    job_.restart(rank);
    dead_[rank] = false;
  }
  /// All that live end with these results; one that joined returns from earlier calls at once.
  void check(const std::vector<double>& expected, const std::vector<std::size_t>& joined = {}) {
    std::vector<std::size_t> without;
    for (std::size_t r = 0; r < job_.size(); ++r)
      if (dead_[r]) without.push_back(r);
    CHECK(job_.all_end(without));
    for (std::size_t r = 0; r < job_.size(); ++r) {
      if (dead_[r]) continue;
      INFO("rank " << r << ": " << job_.report(r).what.text << job_.logs());
      const bool is_new = std::find(joined.begin(), joined.end(), r) != joined.end();
      if (is_new && std::string(job_.report(r).what).find("has ended the job") != std::string::npos)
        continue;  // too late
      CHECK(job_.report(r).outcome == Outcome::done);
      const std::vector<double> found = job_.numbers(r);
      constexpr std::ptrdiff_t digits = 64;
      REQUIRE(found.size() >= digits);
      if (is_new)
        CHECK(std::equal(found.end() - digits, found.end(), expected.end() - digits));
      else
        CHECK((found == expected));
    }
  }

 private:
  Processes job_;
  std::vector<bool> dead_;
};

/// A process of each role is killed, under all optimizers.
void check_each_role(std::optional<std::uint64_t> staleness, std::size_t backups = 0) {
  const bool is_short = backups > 0;
  for (int optimizer = 0; optimizer < (is_short ? 2 : 4); ++optimizer) {
    Plan plan{.optimizer = optimizer, .epochs = is_short ? 3 : 5};
    const std::vector<double> expected = alone(plan);
    plan.staleness = staleness;
    plan.backups = backups;
    // Of these ranks 0 is the chief, 1 and 2 are workers, 3 to 5 servers.
    for (const std::size_t victim : {0u, 2u, 3u, 5u}) {
      if (optimizer > 0 && victim != 3u + static_cast<std::size_t>(optimizer) % 3) continue;
      CAPTURE(optimizer, victim);
      Disturbed job({.workers = 2, .servers = 3, .chief = true}, plan);
      job.until_step(1, 7 + 3 * victim);
      job.kill(victim);
      job.check(expected);
    }
  }
}

}  // namespace

TEST_CASE("a job with servers goes on without a killed worker, server or chief") {
  check_each_role({});
}

TEST_CASE("asynchronous steps go on without a killed worker, server or chief, each batch once") {
  check_each_role(
      0);  // no step misses another, so that the bits show a batch that is lost or twice
}

TEST_CASE("steps with a backup worker go on without a killed worker, server or chief") {
  check_each_role({}, 1);  // of two workers: the one that is left computes all slices
}

TEST_CASE("a loss between two asynchronous phases loses no batch") {
  for (const Plan::Hook hook : {Plan::Hook::test, Plan::Hook::batch_begin, Plan::Hook::batch_end})
    for (const std::size_t victim : {0u, 1u, 3u}) {
      CAPTURE(static_cast<int>(hook), victim);
      Plan plan{.each = hook == Plan::Hook::test ? 1u : 3u, .hook = hook, .victim = victim};
      const std::vector<double> expected = alone(plan);
      plan.staleness = 0;
      Disturbed job({.workers = 2, .servers = 3}, plan);
      REQUIRE(job.job().until([&] { return job.job().has_ended(victim); }));
      job.lose(victim);
      job.check(expected);
    }
}

TEST_CASE("accumulated gradients count once when a server dies while another waits for its norm") {
  Plan plan{.optimizer = 4,
            .epochs = 1,
            .hook = Plan::Hook::batch_end,
            .victim = 3,
            .after = 2,
            .lingers = 300ms};
  const std::vector<double> expected = alone(plan);
  for (const bool has_backups : {false, true}) {
    CAPTURE(has_backups);
    plan.staleness = has_backups ? std::nullopt : std::optional<std::uint64_t>(0);
    plan.backups = has_backups ? 1 : 0;
    Disturbed job({.workers = 2, .servers = 2}, plan);
    REQUIRE(job.job().until([&] { return job.job().has_ended(3); }));
    job.lose(3);
    job.check(expected);
  }
}

TEST_CASE("several batches in work at a loss count once") {
  Plan plan{.epochs = 8, .learns = false};
  const std::vector<double> expected = alone(plan);
  plan.staleness = 6;
  for (const std::size_t victim : {0u, 2u, 3u, 5u}) {
    CAPTURE(victim);
    Disturbed job({.workers = 3, .servers = 3}, plan);
    job.until_step(1, 10 + 7 * victim);
    job.kill(victim);
    job.check(expected);
  }
  Disturbed job({.workers = 3, .servers = 3}, plan);
  job.until_step(0, 10);
  job.kill(2);
  job.restart(2);  // the phase ends early for it, with batches missing
  job.check(expected, {2});
}

TEST_CASE("servers are killed one after another, and started again") {
  for (const bool asynchronous : {false, true}) {
    CAPTURE(asynchronous);
    Plan plan{.epochs = 12, .pause = 4ms};
    const std::vector<double> expected = alone(plan);
    if (asynchronous) plan.staleness = 0;
    Disturbed job({.workers = 2, .servers = 3}, plan);
    job.until_step(0, 5);
    job.kill(2);
    job.until_step(0, 15);
    job.kill(4);
    job.until_step(0, 25);  // one server is left, and no range has a second one
    job.restart(2);
    job.restart(1 + 3);
    REQUIRE(
        job.job().until([&] { return job.job().report(2).steps > 2 || job.job().has_ended(0); }));
    REQUIRE(
        job.job().until([&] { return job.job().report(4).steps > 2 || job.job().has_ended(0); }));
    job.kill(3);  // the one that was there from the start
    job.kill(0);  // the chief
    job.check(expected, {2, 4});
  }
}

TEST_CASE("a killed server without a second one is named by all, with the remedy") {
  const Plan plan{.epochs = 1000, .replicas = 1};
  for (const Tasks& tasks : {Tasks{2, 1}, Tasks{2, 3, true}}) {
    const std::size_t victim = tasks.count() - tasks.servers;
    CAPTURE(tasks.servers);
    Disturbed job(tasks, plan);
    job.until_step(0, 10);
    const Clock::time_point killed = Clock::now();
    job.kill(victim);
    REQUIRE(job.job().all_end({victim}));
    for (std::size_t r = 0; r < tasks.count(); ++r) {
      if (r == victim) continue;
      const Report& report = job.job().report(r);
      INFO("rank " << r << ": " << report.what.text << job.job().logs());
      CHECK(report.outcome == Outcome::peer_lost);
      CHECK(report.lost_rank == victim);
      CHECK(std::string(report.lost_address) == job.job().address(victim));
      CHECK_THAT(std::string(report.what),
                 ContainsSubstring("is a parameter server that is lost") &&
                     ContainsSubstring("set .replicas = 2") && ContainsSubstring("--max-restarts"));
      CHECK(report.reported_at - killed < 3s);  // three times the promise
    }
  }
}

TEST_CASE("a server that is asked to end leaves the others, unless it is the last of a range") {
  for (const std::size_t replicas : {2u, 1u}) {
    const Plan plan{.epochs = 12, .pause = 4ms, .replicas = replicas, .handles_signals = true};
    CAPTURE(replicas);
    Disturbed job({.workers = 2, .servers = 2}, plan);
    job.until_step(0, 10);
    job.job().signal(3, SIGTERM);
    REQUIRE(job.job().all_end());
    const std::vector<double> expected = replicas == 2 ? alone(plan) : std::vector<double>();
    for (std::size_t r = 0; r < 4; ++r) {
      INFO("rank " << r << ": " << job.job().report(r).what.text << job.job().logs());
      if (replicas == 1) {  // all stop after the same step
        CHECK(job.job().report(r).outcome == Outcome::done);
        CHECK(job.job().report(r).steps < 120);
        CHECK(job.job().report(r).steps == job.job().report(0).steps);
      } else if (r != 3) {
        CHECK((job.job().numbers(r) == expected));
        CHECK(job.job().report(r).steps >= 120);  // a hook may be called again
      } else {
        CHECK(job.job().report(r).outcome == Outcome::error);
        CHECK_THAT(std::string(job.job().report(r).what), ContainsSubstring("signal"));
      }
    }
  }
}

TEST_CASE("the strategy of the documentation is a value") {
  // --8<-- [start:strategy]
  const ls::ParameterServer<ls::Cpu, ls::Tcp, ls::Elastic> strategy{
      .virtual_shards = 8, .replicas = 2, .elastic = {.min_workers = 1}};
  // --8<-- [end:strategy]
  CHECK(strategy.replicas == 2);
}

TEST_CASE("tables that stay on servers are refused in an elastic job") {
  CHECK_THROWS_WITH((Servers{.asynchronous = true, .tables_on_servers = true}.open()),
                    ContainsSubstring("leave out ls::Elastic, or the option"));
}

TEST_CASE("more replicas of a range than servers are refused in all processes") {
  Disturbed job({.workers = 1, .servers = 2}, {.replicas = 3});
  REQUIRE(job.job().all_end());
  for (std::size_t r = 0; r < 3; ++r)
    CHECK_THAT(std::string(job.job().report(r).what),
               ContainsSubstring("replicas is 3, but the job has 2 parameter servers"));
}

TEST_CASE("processes of jobs with servers are killed and started again at random", "[.slow]") {
  std::size_t kills = 0, restarts = 0;
  for (std::uint32_t seed = 1; kills < 50; ++seed) {
    std::mt19937 draw(seed);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(draw() % n); };
    const Plan plan{.optimizer = static_cast<int>(below(4)), .epochs = 100, .pause = 3ms};
    const std::vector<double> expected = alone(plan);
    const Tasks tasks{2 + below(2), 3, below(2) == 0};
    CAPTURE(seed, plan.optimizer, tasks.workers, tasks.chief);
    Disturbed job(tasks, plan, 120s);
    std::vector<std::size_t> joined;
    const std::size_t spared = tasks.chief ? 1 : 0;  // a worker
    for (std::size_t i = 0; i < 4; ++i) {
      job.until_step(spared, 10 + 200 * i + below(190));
      if (job.job().has_ended(spared)) break;
      const std::size_t victim = below(tasks.count());
      if (victim == spared) continue;
      std::printf("seed %u: kill %zu of %zu\n", seed, victim, tasks.count());
      job.kill(victim);
      ++kills;
      std::this_thread::sleep_for(milliseconds(below(100)));
      job.restart(victim);
      ++restarts;
      joined.push_back(victim);
      // It trains before the next one dies, so that each range has two owners.
      REQUIRE(job.job().until(
          [&] { return job.job().report(victim).steps > 2 || job.job().has_ended(spared); }));
    }
    job.check(expected, joined);
  }
  std::printf("%zu kills, %zu restarts\n", kills, restarts);
}
