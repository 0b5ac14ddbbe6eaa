#include "lockstep/tensorboard/tensorboard_callback.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <vector>

#include "lockstep/checkpoints.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/tensorboard/histogram_buckets.hpp"
#include "support/event_reader.hpp"
#include "support/log_lines.hpp"
#include "support/temporary_folder.hpp"
#include "unit/training/callbacks/fake_loop.hpp"

namespace ls = lockstep;

namespace {

using Catch::Matchers::ContainsSubstring;
using Names = std::vector<std::string>;
using testing::Points;
using Strings = std::vector<std::string>;

struct Line : ls::Sequential<ls::Input<2>, ls::Dense<3>, ls::BatchNormalization<>, ls::Dense<1>> {};

/// 20 examples in batches of 4: five steps in an epoch.
auto examples() {
  std::vector<float> x, y;
  for (int i = 0; i < 20; ++i) {
    x.push_back(static_cast<float>(i % 7) - 3);
    x.push_back(static_cast<float>(i % 3));
    y.push_back(static_cast<float>(i % 5));
  }
  return ls::tensors(std::move(x), ls::shape(2), std::move(y), ls::shape(1)) | ls::batch(4);
}

auto line() {
  return ls::Model{Line{}, ls::OneDevice<ls::Reference<float>>{}, ls::MeanSquaredError{},
                   ls::SGD{.learning_rate = 0.01}, ls::RootMeanSquaredError{}};
}

ls::FitOptions options(std::shared_ptr<ls::Callback> callback, int epochs = 2) {
  return {
      .epochs = epochs, .callbacks = {std::move(callback)}, .progress = ls::ProgressStyle::none};
}

Names keys(const auto& map) {
  Names result;
  for (const auto& [name, value] : map) result.push_back(name);
  return result;
}

std::size_t files_in(const std::string& folder) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    count += entry.is_regular_file() ? 1 : 0;
  return count;
}

std::vector<std::int64_t> steps_of(const Points& points) {
  std::vector<std::int64_t> result;
  for (const auto& [step, value] : points) result.push_back(step);
  return result;
}

/// Records the logs and the learning rate that callbacks see.
struct Recorder : ls::Callback {
  void on_train_batch_end(std::size_t, const ls::Logs& logs) override {
    losses.push_back(logs["loss"]);
  }
  void on_epoch_end(int, const ls::Logs&) override { rates.push_back(control().learning_rate()); }
  std::vector<double> losses, rates;
};

/// A session's status in the plugin's data: 1 succeeded, 2 failed.
int session_status(const std::string& folder) {
  const auto end = testing::tensors_in(folder).at("_hparams_/session_end_info").at(0);
  return end.plugin_content.at(3);  // { 4: length { 1: status
}

}  // namespace

TEST_CASE("TensorBoard writes each epoch's values to the runs train and validation") {
  const TemporaryFolder place;
  auto model = line();
  const auto data = examples();
  const auto recorder = std::make_shared<Recorder>();
  ls::FitOptions with = options(ls::TensorBoard{.log_dir = place / "logs"}, 3);
  with.callbacks.push_back(recorder);
  with.callbacks.push_back(
      ls::LearningRateScheduler{[](int epoch, double) { return 0.01 / (epoch + 1); }});
  const ls::History history = model.fit(data, data, with);

  const auto train = testing::scalars_in(place / "logs/train");
  CHECK(keys(train) == Names{"epoch_learning_rate", "epoch_loss", "epoch_root_mean_squared_error"});
  const auto validation = testing::scalars_in(place / "logs/validation");
  CHECK(keys(validation) == Names{"epoch_loss", "epoch_root_mean_squared_error",
                                  "evaluation_loss_vs_iterations",
                                  "evaluation_root_mean_squared_error_vs_iterations"});
  const auto points = [&](const std::vector<double>& values, std::int64_t first = 0,
                          std::int64_t each = 1) {
    Points result;
    for (std::size_t i = 0; i < values.size(); ++i)
      result.emplace_back(first + each * static_cast<std::int64_t>(i),
                          static_cast<float>(values[i]));
    return result;
  };
  for (const std::string name : {"loss", "root_mean_squared_error"}) {
    CHECK(train.at("epoch_" + name) == points(history[name]));
    CHECK(validation.at("epoch_" + name) == points(history["val_" + name]));
    CHECK(validation.at("evaluation_" + name + "_vs_iterations") ==
          points(history["val_" + name], 5, 5));
  }
  CHECK(train.at("epoch_learning_rate") == points(recorder->rates));
}

TEST_CASE(
    "TensorBoard writes values of batches as often as update_freq, and goes on in the next fit") {
  const TemporaryFolder place;
  auto model = line();
  const auto data = examples();
  for (const ls::UpdateFreq& freq : {ls::UpdateFreq("batch"), ls::UpdateFreq(3)}) {
    const auto recorder = std::make_shared<Recorder>();
    const auto before = static_cast<std::int64_t>(model.steps());
    const std::string logs = place / std::to_string(before);
    ls::FitOptions with = options(ls::TensorBoard{.log_dir = logs, .update_freq = freq});
    with.callbacks.push_back(recorder);
    model.fit(data, with);
    Points expected;
    for (std::size_t i = 0; i < recorder->losses.size(); ++i) {
      const std::int64_t step = before + static_cast<std::int64_t>(i) + 1;
      if (before == 0 || step % 3 == 0)
        expected.emplace_back(step, static_cast<float>(recorder->losses[i]));
    }
    CHECK(expected.size() == (before == 0 ? 10 : 3));  // steps 1 to 10; 12, 15 and 18
    CHECK(testing::scalars_in(logs + "/train").at("batch_loss") == expected);
  }
}

TEST_CASE("a second fit into the same folder continues the charts in a new file") {
  const TemporaryFolder place;
  auto model = line();
  const auto data = examples();
  const std::shared_ptr<ls::Callback> callback =
      ls::TensorBoard{.log_dir = place / "logs", .update_freq = 5};
  model.fit(data, options(callback, 1));
  ls::FitOptions second = options(callback, 2);
  second.initial_epoch = 1;
  model.fit(data, second);
  CHECK(files_in(place / "logs/train") == 2);
  const auto scalars = testing::scalars_in(place / "logs/train");
  CHECK(steps_of(scalars.at("epoch_loss")) == std::vector<std::int64_t>{0, 1});
  CHECK(steps_of(scalars.at("batch_loss")) == std::vector<std::int64_t>{5, 10});
}

TEST_CASE("an execution of several steps has one value of batches") {
  const TemporaryFolder place;
  auto model = line();
  ls::FitOptions with = options(ls::TensorBoard{.log_dir = place / "logs", .update_freq = "batch"});
  with.steps_per_execution = 2;
  model.fit(examples(), with);
  const auto scalars = testing::scalars_in(place / "logs/train");
  CHECK(steps_of(scalars.at("batch_loss")) == std::vector<std::int64_t>{2, 4, 5, 7, 9, 10});
}

TEST_CASE("TensorBoard writes histograms of weights, gradients and updates") {
  const TemporaryFolder place;
  auto model = line();
  const auto before = model.weights("dense/kernel");
  model.fit(examples(),
            options(ls::TensorBoard{.log_dir = place / "logs", .histogram_freq = 2}, 4));
  const auto tensors = testing::tensors_in(place / "logs/train");
  for (const auto& [tag, by_step] : tensors) {
    CAPTURE(tag);
    REQUIRE(by_step.size() == 2);
    CHECK(by_step.contains(0));
    CHECK(by_step.contains(2));
  }
  for (const std::string name : {"dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias",
                                 "batch_normalization/gamma", "batch_normalization/beta"})
    for (const std::string what : {"", "/gradient", "/update"})
      CHECK(tensors.contains(name + what + "/histogram"));
  CHECK(tensors.contains("batch_normalization/moving_mean/histogram"));
  CHECK_FALSE(tensors.contains("batch_normalization/moving_mean/gradient/histogram"));
  CHECK(tensors.size() == 6 * 3 + 2);
}

TEST_CASE("TensorBoard's histograms are of the weights after the epoch and its last gradient") {
  const TemporaryFolder place;
  auto model = line();
  const auto before = model.weights("dense/kernel");
  model.fit(examples(),
            options(ls::TensorBoard{.log_dir = place / "logs", .histogram_freq = 1}, 1));
  const auto tensors = testing::tensors_in(place / "logs/train");
  const auto check = [&](const std::string& tag, const std::vector<float>& values) {
    CAPTURE(tag);
    const auto found = tensors.at(tag).at(0).doubles();
    const auto expected = ls::histogram_of(values);
    REQUIRE(found.size() == 3 * expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      CHECK(ls::HistogramBucket{found[3 * i], found[3 * i + 1], found[3 * i + 2]} == expected[i]);
  };
  const auto after = model.weights("dense/kernel");
  check("dense/kernel/histogram", after);
  check("dense/kernel/gradient/histogram", model.gradients("dense/kernel"));
  std::vector<float> update;
  for (std::size_t i = 0; i < after.size(); ++i) update.push_back(after[i] - before[i]);
  check("dense/kernel/update/histogram", update);
  check("batch_normalization/moving_variance/histogram",
        model.weights("batch_normalization/moving_variance"));
}

TEST_CASE("TensorBoard writes weights as images if asked to") {
  const TemporaryFolder place;
  auto model = line();
  model.fit(
      examples(),
      options(ls::TensorBoard{.log_dir = place / "logs", .histogram_freq = 1, .write_images = true},
              1));
  const auto tensors = testing::tensors_in(place / "logs/train");
  const auto image = tensors.at("dense/kernel/image").at(0);
  CHECK(image.plugin == "images");
  REQUIRE(image.strings.size() == 3);
  CHECK(image.strings[0] == "3");
  CHECK(image.strings[1] == "2");
}

TEST_CASE("TensorBoard writes the graph unless it is switched off") {
  const TemporaryFolder place;
  auto model = line();
  const auto graphs = [&](const std::string& folder) {
    std::size_t count = 0;
    for (const auto& event : testing::events_in(folder))
      if (!event.graph.empty()) {
        ++count;
        CHECK(event.graph.find("dense_1/Dense") != std::string::npos);
      }
    return count;
  };
  model.fit(examples(), options(ls::TensorBoard{.log_dir = place / "with"}, 1));
  CHECK(graphs(place / "with/train") == 1);
  model.fit(examples(),
            options(ls::TensorBoard{.log_dir = place / "without", .write_graph = false}, 1));
  CHECK(graphs(place / "without/train") == 0);
}

TEST_CASE("TensorBoard writes steps per second") {
  const TemporaryFolder place;
  auto model = line();
  model.fit(examples(),
            options(ls::TensorBoard{
                .log_dir = place / "logs", .write_steps_per_second = true, .update_freq = 2}));
  const auto scalars = testing::scalars_in(place / "logs/train");
  CHECK(scalars.at("epoch_steps_per_second").size() == 2);
  CHECK(scalars.at("batch_steps_per_second").size() == 5);
  for (const auto& name : {"epoch_steps_per_second", "batch_steps_per_second"})
    for (const auto& [step, value] : scalars.at(name)) CHECK(value > 0);
}

TEST_CASE("TensorBoard writes a session with the hyperparameters, and how it ended") {
  const TemporaryFolder place;
  auto model = line();
  const std::shared_ptr<ls::Callback> callback =
      ls::TensorBoard{.log_dir = place / "logs", .hparams = {{"units", 3}, {"optimizer", "sgd"}}};
  model.fit(examples(), options(callback));
  CHECK(testing::tensors_in(place / "logs").contains("_hparams_/session_start_info"));
  CHECK(session_status(place / "logs") == 1);

  struct Fails : ls::Callback {
    void on_epoch_end(int, const ls::Logs&) override { throw std::runtime_error("enough"); }
  };
  ls::FitOptions failing =
      options(ls::TensorBoard{.log_dir = place / "failing", .hparams = {{"units", 3}}});
  failing.callbacks.push_back(std::make_shared<Fails>());
  CHECK_THROWS_AS(model.fit(examples(), failing), std::runtime_error);
  failing.callbacks.clear();
  CHECK(session_status(place / "failing") == 2);
  CHECK(testing::scalars_in(place / "failing/train").at("epoch_loss").size() == 1);
}

TEST_CASE("TensorBoard writes an evaluation against the model's steps") {
  const TemporaryFolder place;
  auto model = line();
  model.fit(examples(), {.epochs = 1, .progress = ls::ProgressStyle::none});
  const std::shared_ptr<ls::Callback> callback = ls::TensorBoard{.log_dir = place / "logs"};
  const ls::Logs logs =
      model.evaluate(examples(), {.callbacks = {callback}, .progress = ls::ProgressStyle::none});
  const auto scalars = testing::scalars_in(place / "logs/validation");
  CHECK(scalars.at("evaluation_loss_vs_iterations") ==
        Points{{5, static_cast<float>(logs["loss"])}});
  CHECK_FALSE(std::filesystem::exists(place / "logs/train"));
}

TEST_CASE("an evaluation after a fit that failed has the model's steps, and is in the file") {
  struct Fails : ls::Callback {
    void on_train_batch_end(std::size_t, const ls::Logs&) override {
      throw std::runtime_error("enough");
    }
  };
  const TemporaryFolder place;
  auto model = line();
  const std::shared_ptr<ls::Callback> callback = ls::TensorBoard{.log_dir = place / "logs"};
  ls::FitOptions failing = options(callback);
  failing.callbacks.push_back(std::make_shared<Fails>());
  CHECK_THROWS_AS(model.fit(examples(), failing), std::runtime_error);
  model.fit(examples(), {.epochs = 1, .progress = ls::ProgressStyle::none});
  const auto steps = static_cast<std::int64_t>(model.steps());
  REQUIRE(steps == 6);
  model.evaluate(examples(), {.callbacks = {callback}, .progress = ls::ProgressStyle::none});
  const auto scalars = testing::scalars_in(place / "logs/validation");
  CHECK(steps_of(scalars.at("evaluation_loss_vs_iterations")) == std::vector<std::int64_t>{steps});
}

TEST_CASE("the graph, and an evaluation within fit, are in the files at once") {
  const TemporaryFolder place;
  const std::shared_ptr<ls::Callback> callback = ls::TensorBoard{.log_dir = place / "logs"};
  callbacks_test::FakeLoop loop;
  callback->set_control(&loop);
  callback->on_train_begin({});
  REQUIRE(testing::events_in(place / "logs/train").size() == 2);
  CHECK_FALSE(testing::events_in(place / "logs/train")[1].graph.empty());
  callback->on_epoch_begin(0, {});
  callback->on_train_batch_begin(0, {});
  loop.made = 1;
  callback->on_train_batch_end(0, callbacks_test::logs_of({{"loss", 1}}));
  callback->on_test_begin({});
  callback->on_test_end(callbacks_test::logs_of({{"loss", 2}}));
  CHECK(testing::scalars_in(place / "logs/validation").at("evaluation_loss_vs_iterations") ==
        Points{{1, 2.0f}});
}

TEST_CASE("a run that is interrupted within an epoch has not ended its session") {
  struct Stops : ls::Callback {
    void on_train_batch_end(std::size_t batch, const ls::Logs&) override {
      if (batch == last) source.request_stop();
    }
    std::size_t last = 0;
    std::stop_source source;
  };
  const TemporaryFolder place;
  auto model = line();
  const auto stops = std::make_shared<Stops>();
  stops->last = 2;
  ls::FitOptions with =
      options(ls::TensorBoard{.log_dir = place / "logs", .hparams = {{"units", 3}}});
  with.callbacks.push_back(stops);
  with.stop = stops->source.get_token();
  model.fit(examples(), with);
  REQUIRE(model.steps() == 3);
  CHECK(testing::tensors_in(place / "logs").contains("_hparams_/session_start_info"));
  CHECK_FALSE(testing::tensors_in(place / "logs").contains("_hparams_/session_end_info"));
}

TEST_CASE("only the chief writes for TensorBoard") {
  const TemporaryFolder place;
  callbacks_test::FakeLoop loop;
  loop.numbers.rank = 1;
  loop.run(ls::TensorBoard{.log_dir = place / "logs", .hparams = {{"units", 3}}},
           {callbacks_test::logs_of({{"loss", 1}, {"val_loss", 2}})});
  CHECK_FALSE(std::filesystem::exists(place / "logs"));
}

TEST_CASE("an epoch's values are in the file when the epoch ends") {
  const TemporaryFolder place;
  const std::shared_ptr<ls::Callback> callback = ls::TensorBoard{.log_dir = place / "logs"};
  callbacks_test::FakeLoop loop;
  callback->set_control(&loop);
  callback->on_train_begin({});
  callback->on_epoch_begin(0, {});
  callback->on_epoch_end(0, callbacks_test::logs_of({{"loss", 1}, {"val_loss", 2}}));
  CHECK(testing::scalars_in(place / "logs/train").at("epoch_loss") == Points{{0, 1.0f}});
  CHECK(testing::scalars_in(place / "logs/validation").at("epoch_loss") == Points{{0, 2.0f}});
}

TEST_CASE("the epoch of a run that was resumed within it keeps counting its steps") {
  const TemporaryFolder place;
  const std::shared_ptr<ls::Callback> callback =
      ls::TensorBoard{.log_dir = place / "logs", .update_freq = "batch"};
  callbacks_test::FakeLoop loop;
  loop.numbers.first_step = loop.made = 13;
  callback->set_control(&loop);
  callback->on_train_begin({});
  callback->on_epoch_begin(1, {});
  callback->on_train_batch_begin(3, {});  // the epoch began with step 10
  loop.made = 14;
  callback->on_train_batch_end(3, callbacks_test::logs_of({{"loss", 1}}));
  callback->on_epoch_end(1, callbacks_test::logs_of({{"loss", 1}}));
  callback->on_epoch_begin(2, {});
  callback->on_train_batch_begin(0, {});
  loop.made = 15;
  callback->on_train_batch_end(0, callbacks_test::logs_of({{"loss", 2}}));
  callback->on_train_end({});
  CHECK(testing::scalars_in(place / "logs/train").at("batch_loss") ==
        Points{{14, 1.0f}, {15, 2.0f}});
}

TEST_CASE("a restart does not withdraw epochs before the checkpoint") {
  const TemporaryFolder place;
  const auto restarts = [&](const std::string& folder, int epoch, bool resumed) {
    callbacks_test::FakeLoop loop;
    loop.numbers.first_step = 5;
    loop.numbers.initial_epoch = epoch;
    loop.numbers.resumed = resumed;
    loop.run(ls::TensorBoard{.log_dir = folder}, {});
    std::vector<std::int64_t> steps;
    for (const auto& event : testing::events_in(folder + "/train"))
      if (event.is_restart) steps.push_back(event.step);
    return steps;
  };
  CHECK(restarts(place / "resumed", 6, true) == std::vector<std::int64_t>{6});
  CHECK(restarts(place / "high", 7, true).empty());  // epoch 6 is kept
  CHECK(restarts(place / "new", 0, false).empty());
}

TEST_CASE("a folder that cannot be created ends fit at its beginning, later ones do not") {
  const TemporaryFolder place;
  auto model = line();
  const auto data = examples();
  std::ofstream(place / "file") << "not a folder";
  CHECK_THROWS_AS(model.fit(data, options(ls::TensorBoard{.log_dir = place / "file"})),
                  ls::FileError);
  CHECK(model.steps() == 0);

  std::filesystem::create_directory(place / "logs");
  std::ofstream(place / "logs/validation") << "not a folder";
  testing::LogLines log;
  model.fit(data, data, options(ls::TensorBoard{.log_dir = place / "logs"}, 3));
  CHECK(model.steps() == 15);
  REQUIRE(log.lines.size() == 1);
  CHECK_THAT(log.lines[0], ContainsSubstring("logs/validation"));
  CHECK(testing::scalars_in(place / "logs/train").at("epoch_loss").size() == 3);
}

TEST_CASE("invalid options of TensorBoard are rejected") {
  const auto made = [](const ls::TensorBoard& o) { return std::shared_ptr<ls::Callback>(o); };
  CHECK_THROWS_AS(made({.histogram_freq = -1}), ls::UsageError);
  CHECK_THROWS_AS(made({.log_dir = ""}), ls::UsageError);
}

TEST_CASE("a training that continues from a checkpoint within an epoch continues the charts") {
  struct Crash : ls::Callback {
    void on_train_batch_end(std::size_t, const ls::Logs&) override {
      if (++steps == 8) throw std::runtime_error("crash");
    }
    std::size_t steps = 0;
  };
  const TemporaryFolder place;
  const auto data = examples();
  const auto with = [&](const ls::Callbacks& more) {
    ls::FitOptions o =
        options(ls::TensorBoard{.log_dir = place / "logs", .update_freq = "batch"}, 3);
    o.checkpoint = {.directory = place / "checkpoints", .every = 1};
    o.callbacks.insert(o.callbacks.end(), more.begin(), more.end());
    return o;
  };
  {
    auto model = line();
    CHECK_THROWS_AS(model.fit(data, with({std::make_shared<Crash>()})), std::runtime_error);
  }
  auto model = line();
  model.fit(data, with({}));
  const auto scalars = testing::scalars_in(place / "logs/train");
  CHECK(files_in(place / "logs/train") == 2);
  CHECK(steps_of(scalars.at("epoch_loss")) == std::vector<std::int64_t>{0, 1, 2});
  std::vector<std::int64_t> steps = steps_of(scalars.at("batch_loss"));
  CHECK(steps.size() >= 15);  // steps after the last checkpoint were made twice
  CHECK(std::is_sorted(steps.begin() + 8, steps.end()));
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  // Only the second file begins with a restart: from the first step after the checkpoint.
  std::vector<std::int64_t> restarts;
  for (const auto& event : testing::events_in(place / "logs/train"))
    if (event.is_restart) restarts.push_back(event.step);
  CHECK(restarts == std::vector<std::int64_t>{8});
  CHECK(steps == std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
}
