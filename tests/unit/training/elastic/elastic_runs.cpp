#include "lockstep/training/elastic/elastic_runs.hpp"

#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/elastic_workers.hpp"
#include "unit/training/mirrored_support.hpp"
#include "unit/training/model_support.hpp"

namespace {

namespace ls = lockstep;
using Float = ls::Reference<float>;
using Catch::Matchers::ContainsSubstring;
using testing::ElasticJob;
using testing::Fault;

/// With all that a step changes: running statistics, random draws, penalties.
struct Full : ls::Sequential<ls::Input<2>, ls::Dense<6>, ls::BatchNormalization<>, ls::ReLU,
                             ls::Dropout<ls::rate(0.4f)>,
                             ls::Dense<3, ls::kernel_regularizer(ls::L2{0.01})>> {};

/// Without statistics of a replica's own examples.
struct Plain : ls::Sequential<ls::Input<2>, ls::Dense<6>, ls::ReLU, ls::Dropout<ls::rate(0.4f)>,
                              ls::Dense<3>> {};

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
/// Changes the rate depending on what it was.
struct Decay : ls::Callback {
  enum class In { all, chief, last };
  Decay(bool each_step, In in) : each_step_(each_step), in_(in) {}
  void on_train_begin(const ls::Logs&) override {
    if (in_ == In::all) decay(0.95);
  }
  void on_epoch_begin(int, const ls::Logs&) override {
    if (in_ == In::all) decay(0.8);
  }
  void on_train_batch_end(std::size_t, const ls::Logs&) override {
    if (each_step_) decay(0.9);
  }
  void on_epoch_end(int, const ls::Logs&) override { decay(0.5); }
  void decay(double factor) {
    const bool is_chief = params().rank == 0, is_last = params().rank == params().replicas - 1;
    if (in_ == In::all || (in_ == In::chief ? is_chief : is_last))
      control().set_learning_rate(control().learning_rate() * factor);
  }
  bool each_step_;
  In in_;
};
/// Starts with the weights of the first run.
struct Weights : ls::Callback {
  explicit Weights(std::shared_ptr<std::vector<std::byte>> first) : first_(std::move(first)) {}
  void on_train_begin(const ls::Logs&) override {
    if (first_->empty()) *first_ = control().weights();
    control().set_weights(*first_);
  }
  std::shared_ptr<std::vector<std::byte>> first_;
};
/// Stops after the second epoch.
struct Stop : ls::Callback {
  void on_epoch_end(int epoch, const ls::Logs&) override {
    if (epoch == 1) source.request_stop();
  }
  std::stop_source source;
};
/// Holds the lock of the checkpoints when the chief is lost, as if that one had hung, for an epoch.
struct Lock : ls::Callback {
  explicit Lock(std::string path) : path_(std::move(path)) {}
  void on_workers_change(const ls::WorkersChange& change) override {
    if (!change.is_chief) return;
    held_.emplace(path_);
    for (int i = 0; i < 400; ++i) try {
        return held_->open_for_writing();
      } catch (const ls::detail::DirectoryInUse&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
  }
  void on_epoch_begin(int, const ls::Logs&) override { held_.reset(); }
  std::string path_;
  std::optional<ls::detail::CheckpointDirectory> held_;
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
  bool decays_each_step = false;
  Decay::In decays_in = Decay::In::all;
  int evaluates = 0;     // within the hooks of epochs; 2: also within those of steps
  std::string folder{};  // of checkpoints, a log
  int runs = 1;
  int epochs = 3;
  bool is_locked = false;  // see Lock
  bool restores = false;   // the weights of the worst epoch
  bool stops = false;      // after an epoch
  std::shared_ptr<std::vector<std::byte>> first_weights{};
};

template <class Net = Full, class Strategy>
Found train(const Strategy& strategy, const Plan& plan, const std::shared_ptr<Hooks>& hooks) {
  const ls::Adam adam{.learning_rate = 0.01,
                      .with = {.use_ema = true, .gradient_accumulation_steps = 2}};
  ls::Model m{Net{}, ls::Seed{7}, strategy, replicas::crossentropy, adam, ls::Accuracy{}};
  const auto data = line::classes(40);
  auto options = line::quiet(plan.epochs);
  options.callbacks = {
      hooks, std::make_shared<Decay>(plan.decays_each_step, plan.decays_in),
      ls::EarlyStopping{.monitor = "loss",
                        .patience = 5,
                        .mode = plan.restores ? ls::MonitorMode::max : ls::MonitorMode::min,
                        .restore_best_weights = plan.restores}};
  if (plan.first_weights)
    options.callbacks.push_back(std::make_shared<Weights>(plan.first_weights));
  if (plan.stops) {
    const auto stop = std::make_shared<Stop>();
    options.callbacks.push_back(stop);
    options.stop = stop->source.get_token();
  }
  if (plan.evaluates > 0) {
    const auto evaluator = std::make_shared<Evaluator>();
    evaluator->each_step = plan.evaluates > 1;
    evaluator->evaluate = [&m, data] { m.evaluate(data | ls::batch(20)); };
    options.callbacks.push_back(evaluator);
  }
  if (!plan.folder.empty()) {
    options.callbacks.push_back(
        ls::CSVLogger{.filename = plan.folder + "/log.csv", .append = true});
    options.checkpoint = {.directory = plan.folder + "/checkpoints",
                          .every = 2,
                          .keep = 0,
                          .best = "loss",
                          .asynchronous = false,
                          .required = true};
  }
  if (plan.is_locked)
    options.callbacks.push_back(std::make_shared<Lock>(plan.folder + "/checkpoints"));
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

template <class Net = Full>
Outcome run(std::size_t founders, std::size_t workers, const Plan& plan, std::vector<Fault> faults,
            std::size_t shards = 8, std::size_t replicas = 1,
            const std::vector<std::size_t>& joins_at = {}) {
  Outcome outcome;
  outcome.job = std::make_shared<ElasticJob>(founders, shards, std::move(faults), replicas);
  outcome.found.resize(workers);
  for (std::size_t w = 0; w < workers; ++w) outcome.hooks.push_back(std::make_shared<Hooks>());
  outcome.have_ended = testing::run_elastic<Float>(outcome.job, workers, [&](const auto& worker) {
    if (worker.worker >= founders) outcome.job->wait_for(joins_at[worker.worker - founders]);
    outcome.found[worker.worker] = train<Net>(worker, plan, outcome.hooks[worker.worker]);
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
    CHECK(hooks.train_end >= 1);  // again if another worker had not reached the end
  }
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The files of a run, except what names the number of workers.
std::map<std::string, std::string> files_in(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string path = std::filesystem::relative(entry.path(), folder);
    if (entry.path().filename() == "manifest.json") {
      const std::string text = text_of(entry.path());
      const std::size_t at = text.find("\"has_ended\"");
      files[path] = text.substr(at, text.find(',', at) - at);
    }
    if (entry.is_regular_file() && entry.path().filename() != "manifest.json" &&
        entry.path().filename() != "callbacks.safetensors" && entry.path().filename() != "lock")
      files[path] = text_of(entry.path());
  }
  return files;
}

/// A new folder in each run, if the plan has one.
struct Folder {
  explicit Folder(const Plan& plan) : path(plan.folder) {
    if (path.empty()) return;
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
    std::ofstream(path + "/log.csv") << "epoch,loss\r\n0,1\r\n7,2\r\n";  // of an earlier run
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
    INFO("exchange " << at << " of " << last << ", worker " << victim << ", kind "
                     << static_cast<int>(kind));
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

std::string folder_of_job() {
  return (std::filesystem::temp_directory_path() /
          ("lockstep_elastic_" + std::to_string(::getpid())))
      .string();
}

/// All plans; every `stride`-th exchange, since each costs a run.
void sweep_all(std::size_t stride) {
  const std::string folder = folder_of_job();
  using enum Fault::Kind;
  const Plan executions{.steps_per_execution = 3, .verify_every = 1};
  const Plan steady{.steps_per_execution = 2, .steps_per_epoch = 4};
  const Plan decays{.decays_each_step = true};
  const Plan chief_decays{.decays_each_step = true, .decays_in = Decay::In::chief};
  const Plan files{.folder = folder};
  sweep({}, 2, dies_before, stride);
  sweep({}, 2, dies_after, stride);
  sweep({}, 0, dies_before, stride);
  sweep({}, 0, fails_after, stride);
  sweep(executions, 1, fails_after, stride);
  sweep(steady, 0, dies_after, stride);
  sweep({.steps_per_execution = 2, .has_validation = false, .verify_every = 1}, 0, dies_before,
        stride);
  sweep({.has_validation = false, .verify_every = 2}, 3, fails_after, stride);
  sweep(decays, 2, fails_after, stride);
  sweep(decays, 0, fails_after, stride);
  sweep(chief_decays, 0, fails_after, stride);
  sweep(chief_decays, 3, dies_before, stride);
  const Plan last_decays{.decays_each_step = true, .decays_in = Decay::In::last};
  sweep(last_decays, 1, dies_before, stride);
  sweep(last_decays, 3, fails_after, stride);
  sweep(last_decays, 0, dies_after, stride);
  sweep({.decays_in = Decay::In::last}, 1, fails_after, stride);
  sweep({.decays_in = Decay::In::last}, 3, fails_after, stride);
  sweep({.evaluates = 1}, 1, fails_after, stride);
  sweep({.evaluates = 1}, 0, dies_before, stride);
  sweep({.evaluates = 2}, 1, fails_after, stride);
  sweep(files, 0, dies_before, stride);
  sweep(files, 0, dies_after, stride);
  sweep(files, 0, fails_after, stride);
  sweep({.steps_per_execution = 2, .folder = folder}, 1, fails_after, stride);
  sweep({.runs = 3}, 1, fails_after, stride);
  sweep({.runs = 3}, 0, dies_before, stride);
  const Plan restores{.has_validation = false, .restores = true};
  const Plan stops{.has_validation = false, .folder = folder, .stops = true};
  sweep(restores, 1, fails_after, std::min(stride, std::size_t{8}));
  sweep({.folder = folder, .restores = true}, 2, fails_after, stride);
  sweep(stops, 0, dies_before, stride);
  sweep(stops, 0, dies_after, stride);
}

/// Random faults of several workers, also at once and while the others recover, and workers that
/// join.
void disturb(std::uint32_t first, std::uint32_t count) {
  std::map<std::size_t, std::pair<Found, std::shared_ptr<Hooks>>> quiet;
  const auto first_weights = std::make_shared<std::vector<std::byte>>();
  std::size_t generations = 0, joined = 0;
  for (std::uint32_t seed = first; seed < first + count; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    const std::size_t which = below(4);
    Plan plan = which == 0   ? Plan{}
                : which == 1 ? Plan{.steps_per_execution = 3, .verify_every = 1}
                : which == 2 ? Plan{.has_validation = false}
                             : Plan{.steps_per_execution = 2, .steps_per_epoch = 4};
    plan.first_weights = first_weights;
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
        faults.push_back(
            {worker, at, below(2) == 0 ? Fault::Kind::dies_before : Fault::Kind::dies_after});
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
  INFO(generations << " generations, " << joined << " workers joined");
  CHECK(generations > count);
  CHECK(joined > count / 4);
}

}  // namespace

TEST_CASE("a worker fails at an exchange, and the others get the bits of a quiet run") {
  sweep_all(11);
}
TEST_CASE("a worker fails at any exchange", "[.slow]") { sweep_all(1); }

TEST_CASE("several workers fail and join at random") { disturb(1, 20); }
TEST_CASE("several workers fail and join at random in thousands of jobs", "[.slow]") {
  disturb(1000, 5000);
}

TEST_CASE("without virtual shards, and with several replicas, results are equal up to rounding") {
  const auto quiet_hooks = std::make_shared<Hooks>();
  const Plan plan;
  for (const std::size_t shards : {std::size_t{0}, std::size_t{16}}) {
    const Found quiet =
        train<Plain>(ls::OneDevice<Float>{.virtual_shards = shards}, plan, quiet_hooks);
    const Outcome outcome = run<Plain>(
        3, 3, plan, {{0, 15, Fault::Kind::dies_after}, {2, 40, Fault::Kind::fails_after}}, shards,
        2);
    CHECK(!outcome.have_ended[0]);
    for (const std::size_t w : {std::size_t{1}, std::size_t{2}}) {
      const Found& found = outcome.found[w];
      CHECK(found.steps == quiet.steps);
      CHECK(found.epochs == quiet.epochs);
      CHECK(replicas::distance(found.predicted, quiet.predicted) < 1e-3);
      CHECK(replicas::distance(found.history.at("loss"), quiet.history.at("loss")) < 1e-3);
      CHECK(found.digest == outcome.found[1].digest);
      if (shards > 0) CHECK(found.digest == quiet.digest);
    }
  }
}

TEST_CASE("a new chief whose checkpoints are locked by the last one tries again") {
  const Plan plan{.folder = folder_of_job(), .is_locked = true};
  const Folder folder(plan);
  const Outcome outcome = run(2, 2, plan, {{0, 9, Fault::Kind::dies_before}});
  CHECK(outcome.have_ended[1]);
  CHECK(ls::detail::CheckpointDirectory(plan.folder + "/checkpoints").steps().back() == 9);
}

TEST_CASE("a worker that joins with other options of fit is refused, and the others go on") {
  Plan other;
  other.epochs = 4;
  const auto job = std::make_shared<ElasticJob>(2, 8);
  std::vector<std::uint64_t> steps(3);
  const auto work = [&](const auto& worker) {
    if (worker.worker == 2) job->wait_for(10);
    steps[worker.worker] =
        train(worker, worker.worker == 2 ? other : Plan{}, std::make_shared<Hooks>()).steps;
  };
  CHECK_THROWS_WITH(testing::run_elastic<Float>(job, 3, work),
                    ContainsSubstring("epochs is 4 in this worker, but 3 in the job"));
  CHECK(steps == std::vector<std::uint64_t>{9, 9, 0});
}

TEST_CASE("a hook that a worker calls alone when it joins cannot evaluate in an elastic job") {
  const auto job = std::make_shared<ElasticJob>(2, 8);
  const auto work = [&](const auto& worker) {
    ls::Model m{Plain{}, ls::Seed{7}, worker, replicas::crossentropy, ls::SGD{}, ls::Accuracy{}};
    const auto data = line::classes(40) | ls::batch(16);
    auto options = line::quiet(1);
    options.callbacks = {
        ls::LambdaCallback{.on_epoch_begin = [&](int, const ls::Logs&) { m.evaluate(data); }}};
    m.fit(data, options);
  };
  CHECK_THROWS_WITH(testing::run_elastic<Float>(job, 2, work), ContainsSubstring("on_epoch_end"));
}

TEST_CASE("after the end of a job a model can be read, and the next call throws") {
  const auto job = std::make_shared<ElasticJob>(
      2, 8, std::vector<Fault>{{0, 20, Fault::Kind::dies_before}}, 1, 2);
  std::string thrown, again;
  std::uint64_t steps = 0;
  double sum = 0;
  testing::run_elastic<Float>(job, 2, [&](const auto& worker) {
    ls::Model m{Full{}, ls::Seed{7}, worker, replicas::crossentropy, ls::SGD{}, ls::Accuracy{}};
    const auto data = line::classes(40) | ls::batch(16);
    try {
      m.fit(data, line::quiet(9));
    } catch (const ls::PeerLost& e) {
      thrown = e.what();
    }
    steps = m.steps();
    for (const auto& p : m.parameters())
      for (const float w : m.weights(p.name)) sum += static_cast<double>(std::abs(w));
    try {
      m.evaluate(data);
    } catch (const ls::PeerLost& e) {
      again = e.what();
    }
  });
  CHECK(thrown.find("too few are left") != std::string::npos);
  CHECK(again == thrown);
  CHECK(steps > 0);
  CHECK(sum > 0);
}

TEST_CASE("a job continues with the latest call, the most steps and the earliest phase") {
  using ls::detail::FitPhase;
  using ls::detail::RunStanding;
  const RunStanding behind{.call = 2, .has_begun = 1, .steps = 6};
  const RunStanding between{.call = 2, .has_begun = 1, .steps = 7, .phase = FitPhase::between};
  const RunStanding later{.call = 2, .has_begun = 1, .steps = 7, .phase = FitPhase::epoch_end};
  const RunStanding next{.call = 3};
  const auto donor = [](std::vector<RunStanding> all) { return ls::detail::donor_of(all); };
  CHECK(donor({behind, later, between, between}) == 2);
  CHECK(donor({between, next, later}) == 1);
  CHECK(donor({{}, behind}) == 1);
  CHECK(behind.is_behind(between));
  CHECK(!between.is_behind(later));
  CHECK(!later.is_behind(between));
  CHECK(between.is_behind(next));
}
