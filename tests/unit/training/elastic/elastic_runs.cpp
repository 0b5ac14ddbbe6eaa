#include "lockstep/training/elastic/elastic_runs.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
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
/// Changes the rate depending on what it was, in all workers or only in the chief.
struct Decay : ls::Callback {
  Decay(bool each_step, bool only_chief) : each_step_(each_step), only_chief_(only_chief) {}
  void on_train_batch_end(std::size_t, const ls::Logs&) override {
    if (each_step_) decay(0.9);
  }
  void on_epoch_end(int, const ls::Logs&) override { decay(0.5); }
  void decay(double factor) {
    if (!only_chief_ || params().rank == 0)
      control().set_learning_rate(control().learning_rate() * factor);
  }
  bool each_step_, only_chief_;
};
/// Evaluates within the hooks.
struct Evaluator : ls::Callback {
  std::function<void()> evaluate;
  bool each_step = false;
  void on_train_batch_end(std::size_t batch, const ls::Logs&) override {
    if (each_step && batch == 1) evaluate();
  }
  void on_epoch_end(int, const ls::Logs&) override { evaluate(); }
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
  bool decays_each_step = false, only_chief_decays = false;
  int evaluates = 0;       // within the hooks of epochs; 2: also within those of steps
  std::string folder{};    // of checkpoints, a log
  int runs = 1;
};

template <class Strategy>
Found train(const Strategy& strategy, const Plan& plan, const std::shared_ptr<Hooks>& hooks) {
  const ls::Adam adam{.learning_rate = 0.01,
                      .with = {.use_ema = true, .gradient_accumulation_steps = 2}};
  ls::Model m{Full{}, ls::Seed{7}, strategy, replicas::crossentropy, adam, ls::Accuracy{}};
  const auto data = line::classes(40);
  auto options = line::quiet(3);
  options.callbacks = {hooks, std::make_shared<Decay>(plan.decays_each_step, plan.only_chief_decays),
                       ls::EarlyStopping{.monitor = "loss", .patience = 5}};
  if (plan.evaluates > 0) {
    const auto evaluator = std::make_shared<Evaluator>();
    evaluator->each_step = plan.evaluates > 1;
    evaluator->evaluate = [&m, data] { m.evaluate(data | ls::batch(20)); };
    options.callbacks.push_back(evaluator);
  }
  if (!plan.folder.empty()) {
    options.callbacks.push_back(ls::CSVLogger{.filename = plan.folder + "/log.csv"});
    options.checkpoint = {.directory = plan.folder + "/checkpoints", .every = 2, .keep = 0,
                          .best = "loss", .asynchronous = false, .required = true};
  }
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
  for (int i = 1; i < plan.runs; ++i) {
    m.set_learning_rate(0.02);
    options.checkpoint = {};
    options.callbacks.erase(options.callbacks.begin());
    history = m.fit(once, test, options);
  }
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

/// Without repetitions: a hook that was interrupted, or that makes exchanges, is called again.
template <class T>
std::vector<T> once(std::vector<T> values) {
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
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
    CHECK(once(hooks.batches) == once(quiet_hooks.batches));
    CHECK(once(hooks.losses) == once(quiet_hooks.losses));
    CHECK(once(hooks.epochs) == quiet_hooks.epochs);
    CHECK(hooks.train_begin == 1);
    CHECK(hooks.train_end == 1);
  }
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The files of a run, except what names the number of workers.
std::map<std::string, std::string> files_in(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().filename() != "manifest.json" &&
        entry.path().filename() != "callbacks.safetensors" &&
        entry.path().filename() != "lock")
      files[std::filesystem::relative(entry.path(), folder)] = text_of(entry.path());
  return files;
}

/// A new folder in each run, if the plan has one.
struct Folder {
  explicit Folder(Plan& plan) : path(plan.folder) {
    if (path.empty()) return;
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    if (!path.empty()) std::filesystem::remove_all(path);
  }
  std::map<std::string, std::string> files() const {
    return path.empty() ? std::map<std::string, std::string>{} : files_in(path);
  }
  std::string path;
};

/// Sweeps a fault of `victim` over every exchange of a run.
void sweep(Plan plan, std::size_t victim, Fault::Kind kind, std::size_t stride = 1) {
  const auto quiet_hooks = std::make_shared<Hooks>();
  Found quiet;
  std::map<std::string, std::string> quiet_files;
  {
    const Folder folder(plan);
    quiet = train(ls::OneDevice<Float>{.virtual_shards = 8}, plan, quiet_hooks);
    quiet_files = folder.files();
  }
  std::size_t last = 0;
  for (std::size_t at = 0; at <= last; at += at == 0 ? 1 : stride) {
    INFO("exchange " << at << " of " << last);
    const Folder folder(plan);
    const Outcome outcome =
        run(4, 4, plan, at == 0 ? std::vector<Fault>{} : std::vector<Fault>{{victim, at, kind}});
    compare(outcome, 4, quiet, *quiet_hooks);
    CHECK(outcome.have_ended[(victim + 1) % 4]);
    for (const auto& [name, text] : folder.files()) {
      INFO(name);
      CHECK(quiet_files.contains(name));
      if (name.ends_with("csv")) CHECK(quiet_files[name] == text);
      CHECK((quiet_files[name] == text));
    }
    for (const auto& [name, text] : quiet_files) {
      INFO(name);
      CHECK(folder.files().contains(name));
    }
    if (at == 0) last = outcome.job->exchanges(victim);
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

TEST_CASE("decay each step") { sweep({.decays_each_step = true}, 2, Fault::Kind::fails_after); }
TEST_CASE("decay each step, chief") { sweep({.decays_each_step = true}, 0, Fault::Kind::fails_after); }
TEST_CASE("decay only chief, fails") { sweep({.decays_each_step = true, .only_chief_decays = true}, 0, Fault::Kind::fails_after); }
TEST_CASE("decay only chief, other fails") { sweep({.decays_each_step = true, .only_chief_decays = true}, 3, Fault::Kind::fails_after); }
TEST_CASE("decay only chief, other dies") { sweep({.steps_per_execution = 2, .decays_each_step = true, .only_chief_decays = true}, 3, Fault::Kind::dies_before); }
TEST_CASE("evaluates in epoch end") { sweep({.evaluates = 1}, 1, Fault::Kind::fails_after); }
TEST_CASE("evaluates in epoch end, chief dies") { sweep({.evaluates = 1}, 0, Fault::Kind::dies_before); }
TEST_CASE("evaluates in steps") { sweep({.evaluates = 2}, 1, Fault::Kind::fails_after); }
TEST_CASE("files, chief dies before") { sweep({.folder = "/tmp/lockstep_elastic_files"}, 0, Fault::Kind::dies_before); }
TEST_CASE("files, chief dies after") { sweep({.folder = "/tmp/lockstep_elastic_files"}, 0, Fault::Kind::dies_after); }
TEST_CASE("files, chief fails") { sweep({.folder = "/tmp/lockstep_elastic_files"}, 0, Fault::Kind::fails_after); }
TEST_CASE("files, other fails") { sweep({.steps_per_execution = 2, .folder = "/tmp/lockstep_elastic_files"}, 1, Fault::Kind::fails_after); }
TEST_CASE("runs") { sweep({.runs = 3}, 1, Fault::Kind::fails_after); }
TEST_CASE("runs, chief dies") { sweep({.runs = 3}, 0, Fault::Kind::dies_before); }

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
