#include "lockstep/training/elastic/recovering_runs.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/training/signal_stop.hpp"
#include "support/folder.hpp"
#include "unit/training/elastic/plans.hpp"

namespace {

using namespace plans;
using Catch::Matchers::ContainsSubstring;

/// Raises a signal, unless it has been, and waits until it stops the runs with this token.
void raise_once(int signal, const std::stop_token& token) {
  if (!token.stop_requested()) std::raise(signal);
  while (!token.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

/// Forgets the signal of step 5, which the other worker has adopted in the same process.
struct Forget : ls::Callback {
  void on_workers_change(const ls::WorkersChange& change) override {
    if (change.step == 5) ls::detail::adopt_signal(0);
  }
};

/// Sweeps a fault of `victim` over every exchange of a run.
void sweep(Plan plan, std::size_t victim, Fault::Kind kind, std::size_t stride = 1) {
  const auto quiet_hooks = std::make_shared<Hooks>();
  const auto before = [&] {
    Plan first = plan;
    first.epochs = 1;
    if (plan.resumes)
      train(ls::OneDevice<Float>{.virtual_shards = 8}, first, std::make_shared<Hooks>());
  };
  Found quiet;
  std::map<std::string, std::string> quiet_files;
  {
    const Folder folder(plan);
    before();
    quiet = train(ls::OneDevice<Float>{.virtual_shards = 8}, plan, quiet_hooks);
    quiet_files = folder.files();
  }
  std::size_t last = 0;
  for (std::size_t at = 0; at <= last; at += at == 0 ? 1 : stride) {
    INFO("exchange " << at << " of " << last << ", worker " << victim << ", kind "
                     << static_cast<int>(kind));
    const Folder folder(plan);
    before();
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
  sweep({.has_validation = false, .decays_in = Decay::In::begin}, 1, fails_after,
        std::min(stride, std::size_t{2}));
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
  sweep(stops, 0, dies_before, 1);
  sweep(stops, 0, dies_after, 1);
  sweep({.has_validation = false, .folder = folder, .resumes = true}, 1, fails_after, 1);
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
      const Hooks& called = *outcome.hooks[w];
      CHECK(called.train_begin <= called.train_end);  // as in `compare`
      CHECK((called.train_begin > 0) == (called.train_end > 0));
      if (called.train_begin > 0) CHECK(called.begun == hooks->begun);
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

TEST_CASE("a chief that is frozen in a hook and wakes after its job changes no file") {
  const testing::Folder folder;
  const auto job = std::make_shared<ElasticJob>(3, 8);
  std::atomic<int> ended{0};
  std::map<std::string, std::string> before;
  const auto files = [&] {
    std::map<std::string, std::string> texts;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path()))
      if (entry.is_regular_file()) texts[entry.path()] = text_of(entry.path());
    return texts;
  };
  const auto freeze = [&](int epoch, const ls::Logs&) {
    if (epoch != 0) return;
    job->leave(0);  // the others go on without it
    while (ended < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    before = files();
  };
  testing::run_elastic<Float>(job, 3, [&](const auto& worker) {
    ls::Model m{Plain{}, ls::Seed{7}, worker, replicas::crossentropy, ls::SGD{}, ls::Accuracy{}};
    auto options = line::quiet(3);
    if (worker.worker == 0) options.callbacks.push_back(ls::LambdaCallback{.on_epoch_end = freeze});
    options.callbacks.push_back(ls::ModelCheckpoint{
        .filepath = folder / "last.safetensors", .monitor = "loss", .save_weights_only = true});
    options.callbacks.push_back(
        ls::ModelCheckpoint{.filepath = folder / "last", .monitor = "loss"});
    options.callbacks.push_back(ls::CSVLogger{folder / "log.csv"});
    m.fit(line::classes(40) | ls::batch(16), options);
    ++ended;
  });
  CHECK(before.size() > 5);
  CHECK((files() == before));
  const std::string log = text_of(folder / "log.csv");
  CHECK(std::count(log.begin(), log.end(), '\n') == 4);
}

TEST_CASE("weights that a hook changes in one worker only are not saved in a checkpoint") {
  const testing::Folder folder;
  const auto job = std::make_shared<ElasticJob>(2, 8);
  const auto work = [&](const auto& worker) {
    ls::Model m{Plain{}, ls::Seed{7}, worker, replicas::crossentropy, ls::SGD{}};
    auto options = line::quiet(1);
    options.checkpoint = {.directory = folder / "run", .every = 1, .asynchronous = false};
    options.callbacks = {
        ls::LambdaCallback{.on_train_batch_end = [&](std::size_t batch, const ls::Logs&) {
          if (batch == 1 && worker.worker == 1)
            m.set_weights("dense/bias", std::vector<float>(6, 0.5f));
        }}};
    m.fit(line::classes(40) | ls::batch(8), options);
  };
  CHECK_THROWS_AS(testing::run_elastic<Float>(job, 2, work), ls::ReplicasDiverged);
  CHECK(ls::detail::CheckpointDirectory(folder / "run").steps() == std::vector<std::uint64_t>{1});
}

TEST_CASE("a loss undoes what a hook has loaded from a checkpoint") {
  const testing::Folder folder;
  const auto make = [](const auto& strategy) {
    return ls::Model{Plain{}, ls::Seed{7}, strategy, replicas::crossentropy,
                     ls::SGD{.learning_rate = 0.05}};
  };
  make(ls::OneDevice<Float>{.virtual_shards = 8}).save_checkpoint(folder / "first");
  const auto play = [&](std::vector<Fault> faults, bool& has_ended) {
    const auto job = std::make_shared<ElasticJob>(2, 8, std::move(faults));
    std::string digest;
    has_ended = testing::run_elastic<Float>(job, 2, [&](const auto& worker) {
      auto m = make(worker);
      auto options = line::quiet(2);
      options.callbacks = {ls::ModelCheckpoint{.filepath = folder / "epoch{epoch}.safetensors",
                                               .monitor = "loss",
                                               .save_weights_only = true},
                           ls::LambdaCallback{.on_epoch_end = [&](int, const ls::Logs&) {
                             m.load_checkpoint(folder / "first");
                           }}};
      m.fit(line::classes(40) | ls::batch(16), options);
      if (worker.worker == 0) digest = m.weights_sha256();
    })[1];
    return digest + text_of(folder / "epoch1.safetensors") + text_of(folder / "epoch2.safetensors");
  };
  bool has_ended = false;
  const std::string quiet = play({}, has_ended);
  for (std::size_t at = 1; at == 1 || !has_ended; ++at) {
    CAPTURE(at);
    CHECK((play({{1, at, Fault::Kind::dies_before}}, has_ended) == quiet));
  }
}

TEST_CASE("the backup of a job is removed at its end, also if the chief dies before it does so") {
  const std::string folder = folder_of_job();
  bool has_ended = false;
  for (std::size_t at = 1; !has_ended; ++at) {
    CAPTURE(at);
    const auto job =
        std::make_shared<ElasticJob>(2, 8, std::vector<Fault>{{0, at, Fault::Kind::dies_after}});
    has_ended = testing::run_elastic<Float>(job, 2, [&](const auto& worker) {
      ls::Model m{Plain{}, ls::Seed{7}, worker, replicas::crossentropy, ls::SGD{}, ls::Accuracy{}};
      auto options = line::quiet(1);
      options.callbacks = {ls::BackupAndRestore{.backup_dir = folder}};
      m.fit(line::classes(40) | ls::batch(16), options);
    })[0];
    CHECK(ls::detail::CheckpointDirectory(folder).steps().empty());
    std::filesystem::remove_all(folder);
  }
}

TEST_CASE("a worker that joins with other options of fit is refused, and the others go on") {
  Plan other;
  other.epochs = 4;
  const auto job = std::make_shared<ElasticJob>(2, 8);
  std::vector<std::uint64_t> steps(3);
  const auto work = [&](const auto& worker) {
    if (worker.worker != 2) job->wait_for_newcomer();
    steps[worker.worker] =
        train(worker, worker.worker == 2 ? other : Plan{}, std::make_shared<Hooks>()).steps;
  };
  CHECK_THROWS_WITH(testing::run_elastic<Float>(job, 3, work),
                    ContainsSubstring("epochs is 4 in this worker, but 3 in the job"));
  CHECK(steps == std::vector<std::uint64_t>{9, 9, 0});
}

TEST_CASE("a worker that joins with other data of fit is refused, and the others go on") {
  const auto job = std::make_shared<ElasticJob>(2, 8);
  std::vector<std::uint64_t> steps(3);
  const auto work = [&](const auto& worker) {
    if (worker.worker != 2) job->wait_for_newcomer();
    ls::Model m{Plain{}, ls::Seed{7}, worker, replicas::crossentropy, ls::SGD{}};
    const std::int32_t shift = worker.worker == 2 ? 1 : 0;
    m.fit(line::classes(40) | ls::map([shift](auto& e) { e.y[0] = (e.y[0] + shift) % 3; }) |
              ls::batch(16),
          line::quiet(3));
    steps[worker.worker] = m.steps();
  };
  CHECK_THROWS_WITH(testing::run_elastic<Float>(job, 3, work),
                    ContainsSubstring("targets of the examples is 1, 0, 1, ..., digest") &&
                        ContainsSubstring("in the same order"));
  CHECK(steps == std::vector<std::uint64_t>{9, 9, 0});
}

TEST_CASE("a worker that joins with other callbacks that write files is refused") {
  const testing::Folder folder;
  const auto job = std::make_shared<ElasticJob>(2, 8);
  std::vector<std::uint64_t> steps(3);
  const auto work = [&](const auto& worker) {
    if (worker.worker != 2) job->wait_for_newcomer();
    ls::Model m{Plain{}, ls::Seed{7}, worker, replicas::crossentropy, ls::SGD{}};
    auto options = line::quiet(3);
    options.callbacks = {ls::CSVLogger{folder / "log.csv"}};
    if (worker.worker != 2)
      options.callbacks.push_back(ls::ModelCheckpoint{.filepath = folder / "best",
                                                      .monitor = "loss",
                                                      .save_best_only = true,
                                                      .mode = ls::MonitorMode::min,
                                                      .save_freq = 2});
    m.fit(line::classes(40) | ls::batch(16), options);
    steps[worker.worker] = m.steps();
  };
  CHECK_THROWS_WITH(
      testing::run_elastic<Float>(job, 3, work),
      ContainsSubstring("callbacks that write files is CSVLogger in this worker, but CSVLogger; "
                        "ModelCheckpoint every 2 steps with the best 'loss' (min) in the job"));
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

TEST_CASE("what ended a job is thrown by a model that could not be kept") {
  const auto job = std::make_shared<ElasticJob>(
      2, 8, std::vector<Fault>{{0, 20, Fault::Kind::dies_before}}, 1, 2);
  std::string thrown;
  testing::run_elastic<Float>(job, 2, [&](auto worker) {
    worker.fails_alone = true;
    ls::Model m{Full{}, ls::Seed{7}, worker, replicas::crossentropy, ls::SGD{}, ls::Accuracy{}};
    try {
      m.fit(line::classes(40) | ls::batch(16), line::quiet(9));
    } catch (const ls::PeerLost&) {
    }
    try {
      m.weights_sha256();
    } catch (const ls::PeerLost& e) {
      thrown = e.what();
    }
  });
  CHECK_THAT(thrown, ContainsSubstring("too few are left"));
}

TEST_CASE("SIGTERM at one worker ends it in any call, and the others go on") {
  std::string quiet;
  ::setenv("LOCKSTEP_STOP_SIGNALS", "USR1,USR2", 1);
  for (const auto& [number, where] : {std::pair{SIGTERM, 0},
                                      {SIGTERM, 1},
                                      {SIGTERM, 2},
                                      {SIGTERM, 3},
                                      {SIGTERM, 4},
                                      {SIGHUP, 1},
                                      {SIGUSR1, 1},
                                      {SIGUSR2, 1}}) {
    CAPTURE(number, where);
    const ls::SignalStop stop;
    const auto job = std::make_shared<ElasticJob>(3, 8);
    std::vector<std::string> found(3);
    testing::run_elastic<Float>(job, 3, [&](const auto& worker) {
      const bool is_asked = worker.worker == 1;
      // clang 14 captures no structured binding.
      const auto in = [&stop, is_asked, signal = number, at = where](int call) {
        return
            [&stop, signal, is_asked = is_asked && at == call](std::size_t batch, const ls::Logs&) {
              if (is_asked && batch == 0) raise_once(signal, stop.token());
            };
      };
      ls::Model m{Full{}, ls::Seed{7}, worker, replicas::crossentropy, ls::SGD{}, ls::Accuracy{}};
      const auto test = line::classes(40) | ls::batch(20);
      const std::stop_token token = is_asked ? stop.token() : std::stop_token();
      auto options = line::quiet(2);
      options.stop = token;
      options.callbacks = {
          ls::LambdaCallback{.on_train_batch_end = in(1), .on_test_batch_end = in(2)}};
      try {
        m.fit(line::classes(40) | ls::batch(16), test, options);
        const ls::Logs logs = m.evaluate(
            test, {.callbacks = {ls::LambdaCallback{.on_test_batch_end = in(3)}}, .stop = token});
        const auto outputs = m.predict(
            test,
            {.callbacks = {ls::LambdaCallback{.on_predict_batch_end = in(4)}}, .stop = token});
        found[worker.worker] = m.weights_sha256() + " " + std::to_string(logs["loss"]) + " " +
                               std::to_string(outputs.elements().size());
      } catch (const ls::Evicted& e) {
        found[worker.worker] = std::to_string(e.signal());
      }
    });
    if (where == 0) quiet = found[0];
    CHECK(found ==
          std::vector<std::string>{quiet, where == 0 ? quiet : std::to_string(number), quiet});
  }
  ::unsetenv("LOCKSTEP_STOP_SIGNALS");
}

TEST_CASE(
    "the rate of a step counts once, however many replicas the chief has when it asks to stop") {
  struct Stops : ls::Callback {
    void on_train_batch_end(std::size_t, const ls::Logs&) override { control().stop_training(); }
  };
  const auto trained = [](std::size_t workers, std::size_t replicas) {
    std::vector<std::string> digests(workers);
    std::vector<std::uint64_t> steps(workers);
    const auto job = std::make_shared<ElasticJob>(workers, 8, std::vector<Fault>{}, replicas);
    testing::run_elastic<Float>(job, workers, [&](const auto& worker) {
      ls::Model m{
          Plain{}, ls::Seed{7}, worker, replicas::crossentropy,
          ls::SGD{.learning_rate = [](std::uint64_t step) { return step < 1 ? 0.05 : 0.02; }}};
      auto options = line::quiet(1);
      options.callbacks = {std::make_shared<Stops>()};
      m.fit(line::classes(40) | ls::batch(8), options);
      steps[worker.worker] = m.steps();
      digests[worker.worker] = m.weights_sha256();
    });
    CHECK(steps == std::vector<std::uint64_t>(workers, 2));
    CHECK(digests.front() == digests.back());
    return digests.front();
  };
  CHECK(trained(2, 2) == trained(4, 1));
}

TEST_CASE(
    "a worker that lacks the step in which a signal stopped the job reports the signal, too") {
  for (std::size_t at = 1; at <= 30; ++at) {
    CAPTURE(at);
    const ls::SignalStop stop;
    const auto job =
        std::make_shared<ElasticJob>(2, 8, std::vector<Fault>{{0, at, Fault::Kind::fails_after}});
    std::vector<std::uint64_t> steps(2);
    testing::run_elastic<Float>(job, 2, [&](const auto& worker) {
      ls::Model m{Full{}, ls::Seed{7}, worker, replicas::crossentropy, ls::SGD{}, ls::Accuracy{}};
      auto options = line::quiet(3);
      const bool is_asked = worker.worker == 1;
      if (is_asked) options.stop = stop.token();
      const auto ask = [&](std::size_t, const ls::Logs&) {
        if (is_asked && m.steps() == 4) ls::detail::adopt_signal(SIGINT);
        while (is_asked && m.steps() == 4 && !stop.token().stop_requested())
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
      };
      options.callbacks = {ls::LambdaCallback{.on_train_batch_end = ask}};
      if (!is_asked) options.callbacks.push_back(std::make_shared<Forget>());
      m.fit(line::classes(40) | ls::batch(16), options);
      steps[worker.worker] = m.steps();
    });
    CHECK(steps == std::vector<std::uint64_t>{5, 5});
    CHECK(stop.signal() == SIGINT);
  }
}

TEST_CASE("a loss that is not finite names the replica of three with unequal slices") {
  const auto job = std::make_shared<ElasticJob>(3, 8);
  const auto work = [&](const auto& worker) {
    std::vector<float> x(32, 0.5f);
    x[2 * 14] = std::numeric_limits<float>::infinity();  // in the last of 8 slices
    const auto data = ls::tensors(x, ls::shape(2), std::vector<std::int32_t>(16));
    ls::Model m{Plain{}, ls::Seed{7}, worker, replicas::crossentropy, ls::SGD{}, ls::Accuracy{}};
    auto options = line::quiet();
    options.callbacks = {ls::TerminateOnNaN{.raise_error = true}};
    m.fit(data | ls::batch(16), options);
  };
  CHECK_THROWS_WITH(testing::run_elastic<Float>(job, 3, work),
                    ContainsSubstring("the loss of replica 2;"));
}

TEST_CASE("a job continues with the latest call and the latest boundary of it") {
  using ls::detail::RunStanding;
  const RunStanding behind{.call = 2, .has_begun = 1, .boundaries = 6};
  const RunStanding ahead{.call = 2, .has_begun = 1, .boundaries = 7};
  const RunStanding next{.call = 3};
  const auto donor = [](std::vector<RunStanding> all) { return ls::detail::donor_of(all); };
  CHECK(donor({behind, ahead, ahead}) == 1);
  CHECK(donor({ahead, next, ahead}) == 1);
  CHECK(donor({{}, behind}) == 1);
  CHECK(behind.is_behind(ahead));
  CHECK(!ahead.is_behind(behind));
  CHECK(!ahead.is_behind(ahead));
  CHECK(ahead.is_behind(next));
}

TEST_CASE("batches in memory in an elastic job: a loss at any exchange leaves the bits of none") {
  std::vector<float> x;
  std::vector<std::int32_t> y;
  for (int i = 0; i < 22; ++i) {
    x.push_back(static_cast<float>(i % 5) - 2);
    x.push_back(static_cast<float>(i % 7) / 2);
    y.push_back(i % 3);
  }
  const auto digest = [&](const auto& strategy, auto... scope) {
    ls::Model m{Full{}, ls::Seed{7}, strategy, replicas::crossentropy,
                ls::Adam{.learning_rate = 0.01}};
    for (int step = 0; step < 3; ++step) {
      m.train_on_batch(scope..., x, y);
      const auto batch = m.batch(scope..., x, y);
      m.apply(m.gradients_of(batch));
      m.test_step(batch);
    }
    return m.weights_sha256();
  };
  const std::string quiet = digest(ls::OneDevice<Float>{.virtual_shards = 8});
  std::size_t last = 0;
  for (std::size_t at = 0; at <= last; at += at == 0 ? 1 : 3) {
    INFO("exchange " << at << " of " << last);
    using enum Fault::Kind;
    const std::array kinds{dies_before, dies_after, fails_after};
    const auto job = std::make_shared<ElasticJob>(
        3, 8, at == 0 ? std::vector<Fault>{} : std::vector<Fault>{{at % 3, at, kinds[at / 3 % 3]}});
    std::vector<std::string> found(3);
    const auto have_ended = testing::run_elastic<Float>(job, 3, [&](const auto& worker) {
      found[worker.worker] = digest(worker, ls::global_batch);
    });
    for (std::size_t w = 0; w < 3; ++w)
      if (have_ended[w]) CHECK(found[w] == quiet);
    CHECK(std::count(have_ended.begin(), have_ended.end(), true) >= 2);
    if (at == 0) last = job->exchanges(1);
  }
  CHECK(last > 20);
  std::mutex mutex;
  std::string refused;
  testing::run_elastic<Float>(std::make_shared<ElasticJob>(2, 8, std::vector<Fault>{}), 2,
                              [&](const auto& worker) {
                                ls::Model m{Full{}, worker, replicas::crossentropy, ls::SGD{}};
                                const std::scoped_lock lock(mutex);
                                try {
                                  m.train_on_batch(ls::local_batch, x, y);
                                } catch (const ls::UsageError& e) {
                                  refused = e.what();
                                }
                                try {
                                  m.batches(line::classes(16) | ls::batch(8));
                                } catch (const ls::UsageError& e) {
                                  refused += e.what();
                                }
                              });
  CHECK(refused.find("in an elastic job the parts change with the workers") != std::string::npos);
  CHECK(refused.find("batches: in an elastic job workers come and go") != std::string::npos);
}
