/// \file
/// Elastic jobs on a simulated network: agreement, rendezvous, recovery and training together.
#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/cluster.hpp"
#include "lockstep/elastic.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/testing.hpp"
#include "lockstep/testing/kernel/sim_time.hpp"
#include "lockstep/trace.hpp"
#include "support/log_lines.hpp"

namespace ls = lockstep;
using namespace std::chrono_literals;
using ls::testing::Network;
using ls::testing::TimedFault;
using std::chrono::nanoseconds;

namespace {

using Float = ls::Reference<float>;

struct Net : ls::Sequential<ls::Input<4>, ls::Dense<6>, ls::BatchNormalization<>, ls::ReLU,
                            ls::Dropout<ls::rate(0.4f)>, ls::Dense<3>> {};

constexpr std::size_t workers = 4, batches = 20;
constexpr int epochs = 4;
constexpr nanoseconds step_time = 80ms;
/// After the last fault.
constexpr nanoseconds time_to_end = 90s;

/// A life of a worker, and its steps.
struct Life {
  struct Trained {
    std::uint64_t generation = 0;
    std::size_t rank = 0, size = 0;  ///< within the generation
    std::size_t step = 0;
  };
  std::size_t worker = 0, number = 0;
  std::vector<Trained> steps{};
  std::string weights{};  ///< if it has finished
  std::string what{};     ///< of its exception
  bool names_peer = false, has_ended = false;
  nanoseconds at{};
};

using Lives = std::vector<std::unique_ptr<Life>>;

/// MultiWorkerMirrored; the callback sees the generation.
struct Watched {
  using Base = ls::MultiWorkerMirrored<Float, ls::Tcp, ls::Elastic>;
  using device = Float;
  static constexpr std::string_view name = "watched";

  /// The generation of the open session.
  struct Place {
    std::uint64_t generation = 0;
    std::size_t rank = 0, size = 0;
  };
  class Session : public Base::Session {
   public:
    explicit Session(const Watched& watched)
        : Base::Session(watched.base.open()), place_(watched.place) {
      see();
    }
    void form() {
      Base::Session::form();
      see();
    }
    void form_alone(std::exception_ptr error) {
      Base::Session::form_alone(std::move(error));
      *place_ = {};  // makes no step
    }

   private:
    void see() { *place_ = {generation(), rank(), workers()}; }
    Place* place_;
  };
  Session open() const { return Session(*this); }

  Base base{};
  Place* place = nullptr;
};

/// Notes each step, which takes `step_time`.
struct Notes : ls::Callback {
  Notes(const ls::testing::Worker& its_worker, const Watched::Place& its_place, Life& its_life)
      : worker(its_worker), place(its_place), life(its_life) {}
  void on_epoch_begin(int now, const ls::Logs&) override { epoch = static_cast<std::size_t>(now); }
  void on_train_batch_end(std::size_t batch, const ls::Logs&) override {
    life.steps.push_back({place.generation, place.rank, place.size, epoch * batches + batch});
    worker.compute(step_time);
  }
  const ls::testing::Worker& worker;
  const Watched::Place& place;
  Life& life;
  std::size_t epoch = 0;
};

template <class Strategy>
std::string train(const Strategy& strategy,
                  std::vector<std::shared_ptr<ls::Callback>> callbacks = {}) {
  constexpr std::size_t batch = 8;
  std::vector<float> x(4 * batch * batches);
  std::vector<std::int32_t> y(batch * batches);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 101) / 101;
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<std::int32_t>(i % 3);
  ls::Model model{Net{}, strategy, ls::SparseCategoricalCrossentropy{.from_logits = true},
                  ls::Adam{.learning_rate = 0.01f}};
  model.fit(
      ls::tensors(x, ls::shape(4), y) | ls::shuffle(64) | ls::batch(batch),
      {.epochs = epochs, .callbacks = std::move(callbacks), .progress = ls::ProgressStyle::none});
  return model.weights_sha256();
}

/// Runs a job of four workers, each on a machine of its own. Fills `lives`, also if it throws.
void run(Network network, Lives& lives) {
  std::optional<::testing::LogLines> quiet;
  if (std::getenv("LOCKSTEP_TEST_LOG") == nullptr) quiet.emplace();
  network.variables["LOCKSTEP_RENDEZVOUS_TIMEOUT"] = "20";
  ls::testing::run_workers(
      workers,
      [&](ls::testing::Worker& worker) {
        Life& life = *lives.emplace_back(
            std::make_unique<Life>(Life{.worker = worker.rank(), .number = worker.life()}));
        Watched::Place place;
        const Watched strategy{{.virtual_shards = 8,
                                .elastic = {.min_workers = 2},
                                .environment = worker.environment()},
                               &place};
        try {
          life.weights = train(strategy, {std::make_shared<Notes>(worker, place, life)});
        } catch (const ls::PeerLost& e) {
          life.names_peer = true;
          life.what = e.what();
        } catch (const std::exception& e) {
          life.what = e.what();
        }
        life.has_ended = true;
        life.at = worker.time();
      },
      network);
}

const std::string& quiet_weights() {
  static const std::string weights = train(ls::OneDevice<Float>{.virtual_shards = 8});
  return weights;
}

std::string text_of(const Life& life) {
  std::string text = "worker " + std::to_string(life.worker) + ", life " +
                     std::to_string(life.number) + ": " +
                     (!life.has_ended         ? std::string("killed")
                      : !life.weights.empty() ? std::string("finished")
                                              : life.what) +
                     " at " + std::to_string(life.at / 1ms) + " ms;";
  for (std::size_t i = 0; i < life.steps.size(); ++i)
    if (i == 0 || i + 1 == life.steps.size() ||
        life.steps[i].generation != life.steps[i - 1].generation)
      text += " step " + std::to_string(life.steps[i].step) + " in generation " +
              std::to_string(life.steps[i].generation) + " of " +
              std::to_string(life.steps[i].size);
  return text;
}

std::string text_of(const Network& network) {
  constexpr std::array names{"kill", "restart",    "freeze", "thaw",    "cut",   "heal",
                             "slow", "jump clock", "loss",   "latency", "jitter"};
  std::string text;
  for (const auto& [at, fault] : network.faults) {
    text += "\n" + std::to_string(at / 1us) + " us: " + names[static_cast<std::size_t>(fault.kind)];
    for (const std::size_t r : fault.first) text += " " + std::to_string(r);
    if (!fault.second.empty()) text += fault.factor == 2 ? " from and to" : " to";
    for (const std::size_t r : fault.second) text += " " + std::to_string(r);
  }
  return text;
}

/// The rules of each run: who finishes has the right bits, and a step is never made by two
/// groups.
void check_lives(const Lives& lives, nanoseconds limit) {
  struct Steps {
    std::size_t first = batches * epochs, last = 0, size = 0;
    std::map<std::size_t, const Life*> by_rank{};
  };
  std::map<std::uint64_t, Steps> generations;
  std::set<std::uint64_t> shared;  // by two groups
  for (const auto& life : lives) {
    if (!life->weights.empty()) CHECK(life->weights == quiet_weights());
    if (life->has_ended && life->weights.empty()) CHECK(life->names_peer);
    CHECK(life->at <= limit);
    for (const auto& [generation, rank, size, step] : life->steps) {
      Steps& all = generations[generation];
      all.first = std::min(all.first, step);
      all.last = std::max(all.last, step);
      if (all.size == 0) all.size = size;
      // Two groups with one number would both have a rank 0.
      const Life* const known = all.by_rank.emplace(rank, life.get()).first->second;
      if (known != life.get() || all.size != size) shared.insert(generation);
    }
  }
  for (const std::uint64_t generation : shared)
    FAIL_CHECK("two groups train as generation " << generation);
  // A generation that has made a step has all members' consent, so the one before cannot go on: it
  // may have ended in one worker the step that the next one begins with.
  const Steps* before = nullptr;
  for (const auto& [generation, all] : generations) {
    if (before != nullptr && before->last > all.first)
      FAIL_CHECK("generation " << generation << " begins with step " << all.first
                               << ", but an earlier one has made step " << before->last);
    before = &all;
  }
}

/// Counts of many runs.
struct Totals {
  std::size_t jobs = 0, finished_jobs = 0, finished = 0, killed = 0, without_quorum = 0, other = 0,
              generations = 0;
  std::map<std::string, std::size_t> errors{};
};

class Plan {
 public:
  explicit Plan(std::uint64_t seed) : random_(seed) {
    network.seed = seed;
    network.latency = std::chrono::microseconds(10 + random_.below(5'000));
    network.jitter = std::chrono::microseconds(random_.below(5'000));
    spared_ = random_.below(workers);
    if (random_.below(4) == 0)
      lose_some();
    else
      for (std::uint64_t i = 0, count = 1 + random_.below(4); i < count; ++i) add();
    for (const TimedFault& fault : network.faults) last = std::max(last, fault.at);
    network.limit = last + time_to_end;
  }

  Network network{};
  nanoseconds last{};        ///< the time of the last fault
  bool is_harmless = false;  ///< all workers that are not killed must finish

 private:
  nanoseconds within(std::uint64_t milliseconds) {
    return std::chrono::microseconds(random_.below(1000 * milliseconds));
  }
  std::size_t rank() { return random_.below(3) == 0 ? 0 : random_.below(workers); }
  void add(nanoseconds at, ls::testing::Fault fault) {
    network.faults.push_back({at, std::move(fault)});
  }
  /// One worker is not started again, so that the others cannot begin a second run of the job.
  void kill(nanoseconds at, std::size_t r) {
    add(at, ls::testing::kill(r));
    if (r != spared_ && random_.below(4) != 0) add(at + within(2500), ls::testing::restart(r));
  }
  /// Losses that leave a quorum each time: one worker, or two that are not the chief, and another
  /// one when they have come back.
  void lose_some() {
    is_harmless = true;
    const nanoseconds first = 500ms + within(1500), second = first + 3500ms + within(1000);
    const std::size_t r = rank(), other = (r + 1 + random_.below(workers - 1)) % workers;
    std::vector<std::size_t> victims{r};
    if (r != 0 && other != 0 && random_.below(2) == 0) victims.push_back(other);
    for (const std::size_t victim : victims) {
      add(first, ls::testing::kill(victim));
      add(first + within(1000), ls::testing::restart(victim));
    }
    add(second, ls::testing::kill((r + 1) % workers));
  }
  void add() {
    const nanoseconds at = within(5500);
    const std::size_t r = rank(), other = (r + 1 + random_.below(workers - 1)) % workers;
    switch (random_.below(8)) {
      case 0:
        return kill(at, r);
      case 1:
        kill(at, r);
        return kill(at, other);
      case 2:  // while the others recover
        kill(at, r);
        return kill(at + within(1000), other);
      case 3:
        add(at, ls::testing::freeze(r));
        return add(at + within(6000), ls::testing::thaw(r));
      case 4: {
        std::array<std::vector<std::size_t>, 2> sides;
        for (std::size_t w = 0; w < workers; ++w)
          sides[w == r ? 0 : w == other ? 1 : random_.below(2)].push_back(w);
        add(at, ls::testing::partition(sides[0], sides[1]));
        if (random_.below(3) != 0) add(at + within(6000), ls::testing::heal());
        return;
      }
      case 5:
        add(at, ls::testing::cut(r, other));
        if (random_.below(3) != 0) add(at + within(6000), ls::testing::heal());
        return;
      case 6:
        add(at, ls::testing::set_loss(0.2 * random_.unit()));
        return add(at + within(4000), ls::testing::set_loss(0));
      default:
        add(at, ls::testing::set_latency(within(100)));
        return add(at + within(4000), ls::testing::set_latency(1ms));
    }
  }

  ls::testing::detail::SimRandom random_;
  std::size_t spared_ = 0;
};

void check_seed(std::uint64_t seed, Totals* totals = nullptr) {
  const Plan plan(seed);
  std::string text = text_of(plan.network);
  Lives lives;
  std::string failure;
  try {
    run(plan.network, lives);
  } catch (const ls::Error& e) {
    failure = e.what();
  }
  for (const auto& life : lives) text += "\n" + text_of(*life);
  INFO("seed " << seed << text);
  CHECK(failure == "");
  check_lives(lives, plan.last + time_to_end);
  if (plan.is_harmless)
    for (const auto& life : lives)
      if (life->has_ended && life->number == 0) CHECK(!life->weights.empty());
  if (totals == nullptr) return;
  ++totals->jobs;
  bool any = false;
  std::uint64_t highest = 0;
  for (const auto& life : lives) {
    any = any || !life->weights.empty();
    for (const auto& step : life->steps) highest = std::max(highest, step.generation);
    if (!life->has_ended)
      ++totals->killed;
    else if (!life->weights.empty())
      ++totals->finished;
    else if (life->what.find("quorum") != std::string::npos)
      ++totals->without_quorum;
    else
      ++totals->other, ++totals->errors[life->what.substr(life->what.find(')') + 1, 60)];
  }
  totals->finished_jobs += any ? 1 : 0;
  totals->generations += highest + 1;
}

/// The errors of the workers of a job that calls `body` with its strategy.
template <class F>
std::vector<std::string> errors(const F& body) {
  const ::testing::LogLines quiet;
  std::vector<std::string> found(2);
  ls::testing::run_workers(found.size(), [&](ls::testing::Worker& worker) {
    Watched::Place place;
    try {
      body(Watched{{.elastic = {.min_workers = 1}, .environment = worker.environment()}, &place});
    } catch (const ls::UsageError& e) {
      found[worker.rank()] = e.what();
    }
  });
  return found;
}

}  // namespace

TEST_CASE("an elastic job refuses a trace, a second open model, too few slices, and one worker") {
  for (const std::string& what : errors([](const Watched& strategy) {
         train(strategy, {ls::Trace{.filename = "unused.json", .first_step = 0}});
       }))
    CHECK(what ==
          "callback: an elastic job cannot be traced, since its workers change; leave out "
          "ls::Trace, or .elastic");
  for (const std::string& what : errors([](const Watched& strategy) {
         const auto open = strategy.open();
         try {
           strategy.open();
         } catch (const ls::UsageError&) {
           std::this_thread::sleep_for(1s);  // until the other one has opened it too
           throw;
         }
       }))
    CHECK(what.find("this process has another open model in the elastic job; close it first") !=
          std::string::npos);
  for (const std::string& what : errors([](Watched strategy) {
         strategy.base.virtual_shards = 1;
         strategy.open();
       }))
    CHECK(what.find("1 slices cannot be shared by 2 workers of an elastic job, of one replica "
                    "each; use at least 2, or fewer workers") != std::string::npos);
  const auto alone = ls::ClusterSpec{}.worker("127.0.0.1:1");
  try {
    ls::MultiWorkerMirrored<Float, ls::Tcp, ls::Elastic>{
        .cluster = {.cluster = alone, .task = ls::Task{.index = 0}}, .elastic = {.min_workers = 1}}
        .open();
    FAIL("it is not refused");
  } catch (const ls::UsageError& e) {
    CHECK(std::string(e.what()).find(".elastic needs a job of several workers") !=
          std::string::npos);
  }
}

TEST_CASE("of an elastic job in two parts, the one with the quorum goes on") {
  struct Parts {
    std::vector<std::size_t> go_on, end;
  };
  for (const auto& [go_on, end] : {Parts{{0, 1}, {2, 3}}, Parts{{1, 2, 3}, {0}}}) {
    Lives lives;
    run({.faults = {{1s, ls::testing::partition(go_on, end)}}}, lives);
    std::string text;
    for (const auto& life : lives) text += "\n" + text_of(*life);
    INFO(text);
    check_lives(lives, 30s);
    for (const auto& life : lives)
      if (std::count(end.begin(), end.end(), life->worker) == 0)
        CHECK(!life->weights.empty());
      else
        CHECK(life->what.find("cannot reach a quorum of the last generation") != std::string::npos);
  }
}

TEST_CASE("of two elastic workers that lose sight of each other the higher rank leaves") {
  Lives lives;
  run({.faults = {{1s, ls::testing::partition({1}, {2})}}}, lives);
  std::string text;
  for (const auto& life : lives) text += "\n" + text_of(*life);
  INFO(text);
  check_lives(lives, 40s);
  for (const auto& life : lives)
    if (life->worker != 2)
      CHECK(!life->weights.empty());
    else
      CHECK(life->what.find("it is the member that cannot exchange data") != std::string::npos);
}

TEST_CASE("an elastic job has the bits of a quiet run, or ends, whatever happens") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) check_seed(seed);
}

TEST_CASE("an elastic job has the bits of a quiet run, or ends, 1000 times", "[.slow]") {
  const char* const from = std::getenv("LOCKSTEP_TEST_SEED");
  const char* const to = std::getenv("LOCKSTEP_TEST_SEEDS");
  const std::uint64_t first = from != nullptr ? std::strtoull(from, nullptr, 10) : 0;
  const std::uint64_t count = to != nullptr ? std::strtoull(to, nullptr, 10) : 1000;
  Totals totals;
  for (std::uint64_t seed = first; seed < first + count; ++seed) check_seed(seed, &totals);
  std::printf(
      "%zu jobs, %zu of them finished; lives: %zu finished, %zu killed, %zu without quorum, %zu "
      "ended otherwise; %zu generations\n",
      totals.jobs, totals.finished_jobs, totals.finished, totals.killed, totals.without_quorum,
      totals.other, totals.generations);
  for (const auto& [what, n] : totals.errors) std::printf("  %zu: %s\n", n, what.c_str());
}
