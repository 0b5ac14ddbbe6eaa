/// Elastic jobs of real processes on ls::Cpu, whose chief dies again and again: the next one continues
/// checkpoints, CSVLogger's lines and TensorBoard's events. Evaluations and predictions, too few
/// workers, and a job that starts again from its checkpoint.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/processes.hpp"
#include "lockstep/checkpoints.hpp"
#include "lockstep/cpu.hpp"
#include "lockstep/elastic.hpp"
#include "lockstep/files/checkpoint_directory.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/tensorboard.hpp"
#include "support/event_reader.hpp"
#include "support/folder.hpp"

using namespace distributed;

namespace {

struct Net : ls::Sequential<ls::Input<6, 6, 1>, ls::Conv2D<2, 3>, ls::BatchNormalization<>,
                            ls::ReLU, ls::Flatten, ls::Dropout<ls::rate(0.4f)>, ls::Dense<3>> {};

using Strategy = ls::MultiWorkerMirrored<ls::Cpu, ls::Tcp, ls::Elastic>;

/// Where a chief dies.
enum class At {
  step,        ///< in a hook of a step
  epoch_end,   ///< before the files get the epoch
  logged,      ///< when they have it
  entry,       ///< while a checkpoint has its temporary name
  latest,      ///< when it has its own
  validation,  ///< within fit
  nested,      ///< in an evaluation by a hook
  evaluation,  ///< after fit
  prediction,
  frozen  ///< at an epoch's end; it does not die, but wakes after the others have ended
};

constexpr std::array everywhere{At::step,   At::epoch_end,  At::logged,
                                At::entry,  At::latest,     At::validation,
                                At::nested, At::evaluation, At::prediction};

constexpr int epochs = 5;
constexpr std::uint64_t steps = 4;  // of an epoch

struct Plan {
  At at = At::step;
  bool all_die = false;      ///< in the same step
  bool only_events = false;  ///< no callback but TensorBoard writes
  std::size_t workers = 3;
  std::size_t survivors = 1;  ///< the others die when they are the chief
  std::size_t min_workers = 1;
};

/// Kills its process in epoch 1, or later if it has not been the chief before.
struct Dies : ls::Callback {
  Dies(Here* here, const Plan& plan) : here_(here), plan_(plan) {}
  void on_epoch_begin(int epoch, const ls::Logs&) override { epoch_ = epoch; }
  void on_train_batch_end(std::size_t batch, const ls::Logs&) override {
    if (batch == 2) die_at(At::step);
  }
  void on_epoch_end(int, const ls::Logs&) override {
    die_at(At::epoch_end);
    die_at(At::frozen);
    is_in_hook_ = true;
    if (evaluate) evaluate();
    is_in_hook_ = false;
  }
  void on_test_batch_end(std::size_t batch, const ls::Logs&) override {
    if (batch == 0) die_at(is_over_ ? At::evaluation : is_in_hook_ ? At::nested : At::validation);
  }
  void on_predict_batch_end(std::size_t batch, const ls::Logs&) override {
    if (batch == 0) die_at(At::prediction);
  }
  void on_train_end(const ls::Logs&) override { is_over_ = true; }

  void die_at(At at) {
    if (here_ == nullptr || plan_.at != at || epoch_ < 1) return;
    const bool dies =
        plan_.all_die || (params().rank == 0 && here_->rank + plan_.survivors < plan_.workers);
    // Not after it has been started again.
    if (dies && here_->begin_fault()) ::kill(::getpid(), at == At::frozen ? SIGSTOP : SIGKILL);
  }
  std::function<void()> evaluate;

 private:
  Here* here_;
  Plan plan_;
  int epoch_ = -1;
  bool is_in_hook_ = false, is_over_ = false;
};
/// As `Dies`, after the callbacks that write files.
struct DiesLogged : ls::Callback {
  explicit DiesLogged(std::shared_ptr<Dies> dies) : dies_(std::move(dies)) {}
  void on_epoch_end(int, const ls::Logs&) override { dies_->die_at(At::logged); }

 private:
  std::shared_ptr<Dies> dies_;
};

auto examples(std::size_t count) {
  std::vector<float> x(36 * count);
  std::vector<std::int32_t> y(count);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) / 17.0f;
  for (std::size_t i = 0; i < count; ++i) y[i] = static_cast<std::int32_t>(i % 3);
  return ls::tensors(x, ls::shape(6, 6, 1), y);
}

/// All results. Writes checkpoints, a CSV file and event files into `folder`. `here`: null in a quiet
/// run.
std::vector<double> train(const Strategy& strategy, const std::string& folder, const Plan& plan,
                          Here* here) {
  static Here* own = nullptr;  // of this process
  static Plan its{};
  own = here;
  its = plan;
  ls::detail::checkpoint_fault() = [](std::string_view operation) {
    static int saves = 0;
    const bool is_entry = its.at == At::entry && operation == "rename entry";
    const bool is_latest = its.at == At::latest && operation == "write latest";
    if ((is_entry || is_latest) && ++saves == 2 && own != nullptr &&
        own->rank + its.survivors < its.workers)
      ::kill(::getpid(), SIGKILL);
    return 0;
  };
  ls::Model model{Net{},
                  ls::Seed{7},
                  strategy,
                  ls::SparseCategoricalCrossentropy{.from_logits = true},
                  ls::Adam{.learning_rate = 0.01f},
                  ls::Accuracy{}};
  const auto data = examples(64);
  const auto test = data | ls::batch(32);
  const auto dies = std::make_shared<Dies>(here, plan);
  ls::FitOptions options{
      .epochs = epochs,
      .callbacks = {dies,
                    ls::ModelCheckpoint{.filepath = folder + "/last.safetensors",
                                        .monitor = "loss",
                                        .save_weights_only = true},
                    ls::ModelCheckpoint{.filepath = folder + "/last", .monitor = "loss"},
                    ls::CSVLogger{folder + "/log.csv"},
                    ls::TensorBoard{
                        .log_dir = folder + "/events", .histogram_freq = 2, .update_freq = "batch"},
                    std::make_shared<DiesLogged>(dies)},
      .checkpoint = {.directory = folder + "/checkpoints", .every = 3, .keep = 2},
      .progress = ls::ProgressStyle::none};
  if (plan.at == At::frozen) options.checkpoint = {};  // whose lock it would keep
  if (plan.only_events) options.callbacks = {dies, ls::TensorBoard{.log_dir = folder + "/events"}};
  if (plan.at == At::nested) dies->evaluate = [&] { model.evaluate(test, {.callbacks = {dies}}); };
  const ls::History history =
      model.fit(data | ls::shuffle(64) | ls::batch(64 / steps), test, options);
  std::vector<double> found;
  for (const std::string& name : history.names())
    for (const double value : history[name]) found.push_back(value);
  for (const auto& [name, value] : model.evaluate(test, {.callbacks = {dies}}))
    found.push_back(value);
  const auto predicted = model.predict(test, {.callbacks = {dies}});
  for (const float value : predicted.elements()) found.push_back(static_cast<double>(value));
  for (const auto& p : model.parameters())
    for (const float w : model.weights(p.name)) found.push_back(static_cast<double>(w));
  return found;
}

void work(Here& here, const std::string& folder, const Plan& plan) {
  ::setenv("LOCKSTEP_MIN_WORKERS", std::to_string(plan.min_workers).c_str(), 1);
  here.give(train({.virtual_shards = 8}, folder, plan, &here));
}

/// Of one process that is not disturbed.
struct Quiet {
  testing::Folder folder;
  std::vector<double> results =
      train({.virtual_shards = 8, .cluster = {.allow_single = true}}, folder.path(), {}, nullptr);
};
const Quiet& quiet_run() {
  static const Quiet quiet;
  return quiet;
}

/// The scalars that TensorBoard shows of a run: a restart withdraws those of its step and later ones.
/// An epoch that is there again, with the same values, counts once.
std::map<std::string, testing::Points> shown(const std::string& folder) {
  std::map<std::string, testing::Points> result;
  for (const testing::Event& e : testing::events_in(folder)) {
    if (e.is_restart)
      for (auto& [tag, points] : result)
        std::erase_if(points, [&](const auto& p) { return p.first >= e.step; });
    for (const testing::SummaryValue& v : e.values)
      if (v.is_simple) result[v.tag].emplace_back(e.step, v.simple_value);
  }
  for (auto& [tag, points] : result)
    points.erase(std::unique(points.begin(), points.end()), points.end());
  return result;
}

/// Files that hooks have written, except events.
std::map<std::string, std::string> written_by_hooks(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const char* const name : {"log.csv", "last.safetensors", "last/latest"})
    files[name] = testing::bytes_of_file(folder + "/" + name);
  const ls::detail::CheckpointDirectory last(folder + "/last");
  for (const std::uint64_t step : last.steps())
    files[std::to_string(step)] =
        testing::bytes_of_file(last.path_of(step) + "/weights.safetensors");
  return files;
}

void check_files(const testing::Folder& folder) {
  const std::string quiet = quiet_run().folder.path(), found = folder.path();
  CHECK((written_by_hooks(found) == written_by_hooks(quiet)));

  ls::detail::CheckpointDirectory directory(found + "/checkpoints");
  CHECK(directory.steps() == std::vector<std::uint64_t>{18, epochs * steps});
  const auto entry = directory.read(epochs * steps);  // checks its sums
  const auto expected =
      ls::detail::CheckpointDirectory(quiet + "/checkpoints").read(epochs * steps);
  for (const char* const name : {"weights.safetensors", "optimizer.safetensors"})
    CHECK((entry.files.at(name) == expected.files.at(name)));
  CHECK(testing::bytes_of_file(found + "/checkpoints/latest") == "step-000000020\n");
  for (const auto& file : std::filesystem::directory_iterator(found + "/checkpoints"))
    CHECK(file.path().extension() != ".tmp");

  for (const char* const run : {"/events/train", "/events/validation"}) {
    CAPTURE(run);
    auto points = shown(found + run);
    const auto all = shown(quiet + run);
    CHECK(points.size() == all.size());
    for (const auto& [tag, quiet_points] : all) {
      CAPTURE(tag);
      const testing::Points& its = points[tag];
      if (!tag.starts_with("batch_")) {
        CHECK(its == quiet_points);
        continue;
      }
      // Those of an unfinished epoch may be lost with a chief; none is there twice, or differs.
      CHECK(its.size() >= quiet_points.size() / 2);
      CHECK(std::is_sorted(its.begin(), its.end()));
      CHECK(std::includes(quiet_points.begin(), quiet_points.end(), its.begin(), its.end()));
    }
  }
}

/// The results of the last worker, and the files, are those of a quiet run.
void survives(const Plan& plan) {
  CAPTURE(static_cast<int>(plan.at), plan.all_die);
  const testing::Folder folder;
  const auto& quiet = quiet_run();
  Processes job(plan.workers, [&](Here& here) { work(here, folder.path(), plan); }, 60s);
  REQUIRE(job.all_end());
  if (plan.all_die) {
    for (std::size_t r = 0; r < plan.workers; ++r) REQUIRE(!job.end(r).exited);
    for (std::size_t r = 0; r < plan.workers; ++r) job.restart(r);
    REQUIRE(job.all_end());
  }
  INFO(job.logs());
  for (std::size_t r = 0; r < plan.workers; ++r) {
    CAPTURE(r, std::string(job.report(r).what));
    if (plan.all_die || r + plan.survivors >= plan.workers)
      CHECK(job.numbers(r) == quiet.results);
    else
      CHECK(!job.end(r).exited);
  }
  check_files(folder);
}

}  // namespace

TEST_CASE("the next chief of an elastic job continues its files, wherever the last one died") {
  for (const At at : everywhere) survives({.at = at});
}

TEST_CASE("a frozen chief that wakes after its job changes no file") {
  const testing::Folder folder;
  const auto& quiet = quiet_run();
  const Plan plan{.at = At::frozen, .survivors = 2};
  Processes job(plan.workers, [&](Here& here) { work(here, folder.path(), plan); }, 60s);
  REQUIRE(job.all_end({0}));
  CHECK(!job.has_ended(0));
  for (const std::size_t r : {std::size_t{1}, std::size_t{2}})
    CHECK(job.numbers(r) == quiet.results);
  const auto before = written_by_hooks(folder.path());
  CHECK((before == written_by_hooks(quiet.folder.path())));
  job.signal(0, SIGCONT);
  REQUIRE(job.all_end());
  INFO(job.logs());
  CHECK((written_by_hooks(folder.path()) == before));
}

TEST_CASE("a frozen chief that wakes after its job adds no epoch to its events") {
  const testing::Folder folder;
  const Plan plan{.at = At::frozen, .only_events = true, .survivors = 2};
  const auto epochs_in_files = [&] {
    std::size_t count = 0;
    for (const testing::Event& e : testing::events_in(folder / "events/train"))
      for (const testing::SummaryValue& v : e.values) count += v.tag == "epoch_loss";
    return count;
  };
  Processes job(plan.workers, [&](Here& here) { work(here, folder.path(), plan); }, 60s);
  REQUIRE(job.all_end({0}));
  CHECK(!job.has_ended(0));
  CHECK(epochs_in_files() == epochs);
  job.signal(0, SIGCONT);
  REQUIRE(job.all_end());
  INFO(job.logs());
  CHECK(epochs_in_files() == epochs);
}

TEST_CASE("an elastic job of which all workers die continues from its checkpoint") {
  survives({.all_die = true});
}

TEST_CASE("an elastic job with fewer workers than its minimum ends with one sentence on all") {
  const testing::Folder folder;
  const Plan plan{.workers = 4, .survivors = 2, .min_workers = 3};
  Processes job(
      plan.workers,
      [&](Here& here) {
        ::setenv("LOCKSTEP_RENDEZVOUS_TIMEOUT", "2", 1);
        here.give({static_cast<double>(ls::run_main([&] { work(here, folder.path(), plan); }))});
      },
      60s);
  REQUIRE(job.all_end());
  const std::string logs = job.logs();
  INFO(logs);
  const std::string sentence =
      ": rank 0 (" + job.address(1) +
      ") is lost, and within 2 s too few workers came back; "
      "min_workers is 3: start lost workers again, or raise LOCKSTEP_RENDEZVOUS_TIMEOUT\n";
  std::size_t count = 0;
  for (std::size_t at = 0; (at = logs.find(sentence, at)) != logs.npos; ++at) ++count;
  CHECK(count == 2);
  for (const std::size_t r : {std::size_t{2}, std::size_t{3}})
    CHECK(job.numbers(r) == std::vector<double>{3});
}
