/// \file
/// Elastic jobs of emulated workers for tests of training: models, callbacks, plans of what the
/// workers call, and the comparison with a run without losses.
#pragma once

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/checkpoints.hpp"
#include "support/elastic_workers.hpp"
#include "unit/training/mirrored_support.hpp"
#include "unit/training/model_support.hpp"

namespace plans {

namespace ls = lockstep;
using Float = ls::Reference<float>;
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
  double begun = 0;  // epochs; a state that on_epoch_begin changes
  std::string_view state_name() const override { return "hooks"; }
  void save_state(ls::CallbackState& state) const override { state.set("begun", begun); }
  void load_state(const ls::CallbackState& state) override { begun = state.number("begun"); }
  void on_epoch_begin(int, const ls::Logs&) override { ++begun; }
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
  /// `all`: in all workers, also when training and epochs begin; `begin`: only when epochs begin.
  enum class In { all, begin, chief, last };
  Decay(bool each_step, In in) : each_step_(each_step), in_(in) {}
  void on_train_begin(const ls::Logs&) override {
    if (in_ == In::all) decay(0.95);
  }
  void on_train_end(const ls::Logs&) override {
    if (in_ == In::all) decay(0.9);
  }
  void on_epoch_begin(int, const ls::Logs&) override {
    if (in_ == In::all || in_ == In::begin) decay(0.8);
  }
  void on_train_batch_end(std::size_t, const ls::Logs&) override {
    if (each_step_) decay(0.9);
  }
  void on_epoch_end(int, const ls::Logs&) override {
    if (in_ != In::begin) decay(0.5);
  }
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
  bool resumes = false;    // after an epoch
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
inline void compare(const Outcome& outcome, std::size_t founders, const Found& quiet,
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
    CHECK(hooks.begun == quiet_hooks.begun);
    CHECK(hooks.train_begin == 1);
    CHECK(hooks.train_end >= 1);  // again if another worker had not reached the end
  }
}

inline std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The files of a run, except what names the number of workers.
inline std::map<std::string, std::string> files_in(const std::string& folder) {
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
    const std::string more = plan.has_validation ? ",0.5,1" : "";  // of an earlier run
    std::ofstream(path + "/log.csv")
        << "epoch,accuracy,loss" << (plan.has_validation ? ",val_accuracy,val_loss" : "")
        << "\r\n0,0.5,1" << more << "\r\n7,0.5,2" << more << "\r\n";
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

}  // namespace plans
