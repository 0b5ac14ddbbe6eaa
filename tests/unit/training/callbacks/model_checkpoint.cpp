#include "lockstep/training/callbacks/model_checkpoint.hpp"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>

#include "callbacks_recorded.hpp"
#include "fake_loop.hpp"
#include "lockstep/checkpoints.hpp"
#include "support/folder.hpp"
#include "support/log_lines.hpp"
#include "unit/training/model_support.hpp"

namespace {

using namespace callbacks_test;
using Catch::Matchers::ContainsSubstring;
using Names = std::vector<std::string>;

std::vector<ls::Logs> epochs_of(const std::vector<double>& values) {
  std::vector<ls::Logs> epochs;
  for (const double value : values) epochs.push_back(logs_of({{"loss", 1}, {"val_loss", value}}));
  return epochs;
}
Names saved_by(const ls::ModelCheckpoint& options, const std::vector<double>& values) {
  FakeLoop loop;
  loop.run(options, epochs_of(values));
  return loop.saved;
}

using File = std::pair<std::string, std::string>;  // hook and path

/// The files of the run that record_callbacks.py made, each with its hook, and "" or the error.
/// `is_interrupted`: after each batch and epoch a new callback continues with the state.
std::pair<std::vector<File>, std::string> files_of(const recorded::Files& r,
                                                   bool is_interrupted = false) {
  const testing::Folder folder;
  ls::ModelCheckpoint options = r.options;
  options.filepath = folder / options.filepath;
  FakeLoop loop;
  std::vector<File> files;
  const auto note = [&](const std::string& hook) {
    for (std::string path : loop.saved) {
      CHECK(path.ends_with('/') == !r.options.save_weights_only);
      if (path.ends_with('/')) path.pop_back();
      REQUIRE(path.starts_with(folder / ""));
      files.emplace_back(hook, path.substr((folder / "").size()));
    }
    loop.saved.clear();
  };
  std::shared_ptr<ls::Callback> callback = options;
  callback->set_control(&loop);
  const auto resume = [&](std::size_t epoch) {
    if (!is_interrupted) return;
    callback = loop.resumed(callback, options);
    callback->on_epoch_begin(static_cast<int>(epoch), {});
  };
  std::string error;
  try {
    for (int fit = 0; fit < r.fits; ++fit) {
      std::size_t step = 0;
      callback->on_train_begin({});
      const std::size_t epochs = r.batches == 1 ? r.values.size() : 3;
      for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
        const std::string number = std::to_string(epoch);
        callback->on_epoch_begin(static_cast<int>(epoch), {});
        ls::Logs logs;
        for (std::size_t batch = 0; batch < r.batches; ++batch) {
          logs.set("loss", r.batches == 1 ? 1 : r.values[step++ % r.values.size()]);
          callback->on_train_batch_begin(batch, {});
          callback->on_train_batch_end(batch, logs);
          note("batch " + number + " " + std::to_string(batch));
          resume(epoch);
        }
        if (r.batches == 1 && r.values[epoch] != recorded::absent)
          logs.set("val_loss", r.values[epoch]);
        callback->on_epoch_end(static_cast<int>(epoch), logs);
        note("epoch " + number);
        resume(epoch);
      }
      callback->on_train_end({});
    }
  } catch (const ls::UsageError& e) {
    error = e.what();
  }
  callback->set_control(nullptr);
  return {files, error};
}

}  // namespace

TEST_CASE(
    "ModelCheckpoint saves after each epoch, weights or a checkpoint, under a formatted name") {
  CHECK(
      saved_by({.filepath = "m-{epoch:02d}-{val_loss:.2f}.safetensors", .save_weights_only = true},
               {0.5, 0.25}) == Names{"m-01-0.50.safetensors", "m-02-0.25.safetensors"});
  CHECK(saved_by({.filepath = "run"}, {0.5, 0.25}) == Names{"run/", "run/"});
  CHECK(saved_by({.filepath = "brace{"}, {1}) == Names{"brace{/"});
}

TEST_CASE("ModelCheckpoint writes the files that Keras writes, at the same hooks") {
  const testing::LogLines lines;
  const auto all = recorded::files();
  REQUIRE(all.size() > 90);
  int fails = 0, gaps = 0, errors = 0, nans = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const recorded::Files& r = all[i];
    CAPTURE(i, r.options.filepath, r.options.save_freq);
    const auto [files, error] = files_of(r);
    CHECK(files_of(r, true) == std::pair(files, error));
    std::vector<File> expected = r.files;
    if (r.error == "TypeError") {  // Keras' save_best_only with save_freq fails in the first epoch
      ++fails;
      REQUIRE(r.options.save_best_only);
      REQUIRE(files.size() >= expected.size());
      for (std::size_t f = 0; f < expected.size(); ++f) CHECK(files[f] == expected[f]);
      CHECK(error.empty());
      continue;
    }
    if (r.options.save_best_only)  // Keras also saves epochs without the value
      gaps += static_cast<int>(std::erase_if(expected, [&](const File& file) {
        return file.first.starts_with("epoch ") &&
               r.values.at(std::stoul(file.first.substr(6))) == recorded::absent;
      }));
    if (r.error == "KeyError" && !files.empty()) {  // Keras ends the training in the second epoch
      REQUIRE(r.values.at(1) == recorded::absent);
      CHECK(files.at(0) == expected.at(0));
      CHECK(files.at(1) == File{"epoch 1", "02-nan.keras"});
      CHECK(error.empty());
      ++nans;
      continue;
    }
    CHECK(files == expected);
    CHECK(error.empty() == r.error.empty());
    errors += r.error == "KeyError";
  }
  CHECK(fails == 6);
  CHECK(gaps > 0);
  CHECK(errors == 4);
  CHECK(nans == 1);
}

TEST_CASE("ModelCheckpoint combines save_best_only with save_freq, where Keras fails") {
  const recorded::Files r{.options = {.filepath = "{epoch}.{batch}",
                                      .monitor = "loss",
                                      .save_best_only = true,
                                      .save_freq = 2,
                                      .initial_value_threshold = 0.3},
                          .values = {1, 0.5, 0.25, 0.4, 0.2, 0.3, 0.1, 0.1},
                          .batches = 5,
                          .fits = 1,
                          .files = {},
                          .error = {}};
  // Steps 2, 4, 6, ... have 0.5, 0.4, 0.3, 0.1, 0.5, 0.4, 0.3; only 0.1 is below the threshold.
  CHECK(files_of(r).first == std::vector<File>{{"batch 1 2", "2.3"}});
}

TEST_CASE("ModelCheckpoint with save_best_only saves only improvements") {
  CHECK(saved_by({.filepath = "{epoch}", .save_best_only = true},
                 {3, 2, 2, 4, 1, std::nan(""), 0.5}) == Names{"1/", "2/", "5/", "7/"});
  CHECK(saved_by({.filepath = "{epoch}", .save_best_only = true, .mode = ls::MonitorMode::max},
                 {3, 2, 4}) == Names{"1/", "3/"});
  CHECK(saved_by({.filepath = "{epoch}", .save_best_only = true, .initial_value_threshold = 2.5},
                 {3, 2, 1}) == Names{"2/", "3/"});
}

TEST_CASE("ModelCheckpoint counts steps over epochs") {
  struct Steps {
    FakeLoop loop;
    void run(const std::shared_ptr<ls::Callback>& callback, int epochs, std::size_t steps) {
      callback->set_control(&loop);
      callback->on_train_begin({});
      for (int epoch = 0; epoch < epochs; ++epoch) {
        callback->on_epoch_begin(epoch, {});
        for (std::size_t batch = 0; batch < steps; ++batch) {
          callback->on_train_batch_begin(batch, {});
          callback->on_train_batch_end(batch, logs_of({{"loss", 0.5}}));
        }
        callback->on_epoch_end(epoch, logs_of({{"loss", 0.5}}));
      }
      callback->set_control(nullptr);
    }
  } steps;
  steps.run(
      ls::ModelCheckpoint{.filepath = "{epoch}.{batch}", .save_weights_only = true, .save_freq = 3},
      2, 4);
  CHECK(steps.loop.saved == Names{"1.3", "2.2"});
}

TEST_CASE("ModelCheckpoint continues with its best value and its count of steps") {
  const std::shared_ptr<ls::Callback> first =
      ls::ModelCheckpoint{.filepath = "{epoch}", .save_best_only = true};
  FakeLoop loop;
  loop.run(first, epochs_of({3, 2}));
  ls::CallbackState state;
  first->save_state(state);
  const std::shared_ptr<ls::Callback> second =
      ls::ModelCheckpoint{.filepath = "{epoch}", .save_best_only = true};
  second->load_state(state);
  loop.saved.clear();
  loop.run(second, epochs_of({2.5, 1.5}));
  CHECK(loop.saved == Names{"2/"});
  // In an elastic job: another worker's state, which has no best value yet.
  ls::CallbackState none;
  none.set("steps", 0.0);
  second->load_state(none);
  loop.saved.clear();
  loop.run(second, epochs_of({9}));
  CHECK(loop.saved == Names{"1/"});
}

TEST_CASE("ModelCheckpoint refuses an empty name, unknown names and formats") {
  CHECK_THROWS_WITH(std::shared_ptr<ls::Callback>(ls::ModelCheckpoint{}),
                    ContainsSubstring("filepath is empty"));
  CHECK_THROWS_WITH(saved_by({.filepath = "{acc}"}, {}),
                    ContainsSubstring("'acc', but an epoch has only epoch, loss, val_loss"));
  CHECK_THROWS_WITH(saved_by({.filepath = "{epoch:.2f}"}, {}), ContainsSubstring("'epoch:.2f'"));
  CHECK_THROWS_WITH(saved_by({.filepath = "{val_loss:02d}"}, {}),
                    ContainsSubstring("'val_loss:02d'"));
  CHECK_THROWS_WITH(saved_by({.filepath = "{batch}"}, {}), ContainsSubstring("'batch'"));
  CHECK_THROWS_WITH(saved_by({.filepath = "{batch} {val_loss}", .save_freq = 1}, {}),
                    ContainsSubstring("'val_loss', but a step has only epoch, batch, loss"));
}

TEST_CASE("ModelCheckpoint saves where a value is missing that another callback may log") {
  const testing::LogLines lines;
  const testing::Folder folder;
  FakeLoop loop;
  loop.callbacks_log = true;
  loop.run(
      ls::ModelCheckpoint{.filepath = folder / "{epoch}-{score:.1f}-{other}"},
      {logs_of({{"score", 1}, {"other", 0.5}}), logs_of({{"loss", 1}}), logs_of({{"loss", 1}})});
  CHECK(loop.saved == Names{folder / "1-1.0-0.5/", folder / "2-nan-nan/", folder / "3-nan-nan/"});
  REQUIRE(lines.lines.size() == 1);
  CHECK_THAT(lines.lines[0],
             ContainsSubstring("epoch 2 has no value of score, other, which is nan"));
  CHECK_THROWS_WITH(loop.run(ls::ModelCheckpoint{.filepath = folder / "{score:d}"}, {}),
                    ContainsSubstring("'score:d'"));
}

TEST_CASE(
    "ModelCheckpoint makes its folders and finds mistakes in the path before the first step") {
  const testing::Folder folder;
  std::ofstream(folder / "file") << "x";
  const auto steps_of = [&](const std::string& path, bool weights, bool validates = false) {
    auto model = line::model();
    const ls::FitOptions options{
        .epochs = 2,
        .callbacks = {ls::ModelCheckpoint{.filepath = folder / path, .save_weights_only = weights}},
        .progress = ls::ProgressStyle::none};
    std::string error;
    try {
      if (validates)
        model.fit(line::points() | ls::batch(5), line::points() | ls::batch(5), options);
      else
        model.fit(line::points() | ls::batch(5), options);
    } catch (const ls::Error& e) {
      error = e.what();
    }
    return std::pair(model.steps(), error);
  };
  for (const bool weights : {false, true}) {
    CAPTURE(weights);
    const std::string a = weights ? "a" : "b";
    for (const std::string& path :
         {a + "/b/c/w", a + "/{epoch}/w", a + "/d{loss:.3f}/e/w{epoch}"}) {
      CAPTURE(path);
      const auto [steps, error] = steps_of(path, weights);
      CHECK(steps == 4);
      CHECK(error.empty());
    }
    CHECK(std::filesystem::exists(folder / a + "/b/c/w"));
    CHECK(std::filesystem::exists(folder / a + "/2/w"));
    CHECK_FALSE(std::filesystem::exists(folder / a + "/d0.500"));  // no folder of the check
    for (const auto& [path, words] :
         {std::pair("file/w", "/file: a folder is needed here, but it is a file"),
          std::pair("w_{val_acc:.2f}", "'val_acc', but an epoch has only epoch, loss"),
          std::pair("w_{val_loss:.2f}", "'val_loss', but an epoch has only epoch, loss"),
          std::pair("w_{loss:02d}", "'loss:02d'"), std::pair("w_{epoch:.2f}", "'epoch:.2f'")}) {
      CAPTURE(path);
      const auto [steps, error] = steps_of(path, weights);
      CHECK(steps == 0);
      CHECK_THAT(error, ContainsSubstring(words));
    }
    CHECK(steps_of(a + "_{val_loss:.2f}", weights, true).first == 4);
  }
  CHECK_THAT(steps_of("a", true).second, ContainsSubstring("it is a folder"));
  if (::geteuid() != 0) {
    std::filesystem::create_directory(folder / "closed");
    std::filesystem::permissions(folder / "closed", std::filesystem::perms::owner_read);
    CHECK(steps_of("closed/w", true).first == 0);
    CHECK(steps_of("closed/w/w", true).first == 0);
  }
}

TEST_CASE("ModelCheckpoint warns before the first step if its value will never be logged") {
  const testing::LogLines lines;
  const testing::Folder folder;
  FakeLoop loop;
  loop.numbers.has_validation = false;
  const ls::ModelCheckpoint best{.filepath = folder / "w", .save_best_only = true};
  loop.run(best, {});
  REQUIRE(lines.lines.size() == 1);
  CHECK(lines.lines[0] ==
        "ModelCheckpoint: no epoch will log a value named 'val_loss'; pass "
        "validation data to fit, or set .monitor to one of loss");
  loop.run(ls::ModelCheckpoint{.filepath = folder / "w"}, {});  // saves each epoch
  loop.callbacks_log = true;
  loop.run(best, {});
  CHECK(lines.lines.size() == 1);
}

TEST_CASE("NaN is never ModelCheckpoint's best value") {
  const double nan = std::nan("");
  for (const auto mode : {ls::MonitorMode::min, ls::MonitorMode::max}) {
    const double sign = mode == ls::MonitorMode::min ? 1 : -1;
    const ls::ModelCheckpoint options{.filepath = "{epoch}", .save_best_only = true, .mode = mode};
    // Keras 3.15 saves the first epoch only.
    CHECK(saved_by(options, {nan, sign * 9, sign * 8, nan, sign * 7}) == Names{"2/", "3/", "5/"});
    CHECK(saved_by(options, {nan, nan}).empty());
  }
  // The state of an earlier version may have it.
  const std::shared_ptr<ls::Callback> resumed =
      ls::ModelCheckpoint{.filepath = "{epoch}", .save_best_only = true};
  ls::CallbackState state;
  state.set("best", nan);
  state.set("steps", 0.0);
  resumed->load_state(state);
  FakeLoop loop;
  loop.run(resumed, epochs_of({9}));
  CHECK(loop.saved == Names{"1/"});
}

TEST_CASE("what ModelCheckpoint saved in fit can be loaded") {
  const testing::Folder folder;
  const auto make = [] {
    return ls::Model{line::Net{}, line::Double{}, ls::MeanSquaredError{},
                     ls::SGD{.learning_rate = 0.1, .momentum = 0.9}};
  };
  auto model = make();
  model.fit(line::points() | ls::batch(5), line::points() | ls::batch(5),
            {.epochs = 3,
             .callbacks = {ls::ModelCheckpoint{.filepath = folder / "w{epoch}.safetensors",
                                               .save_weights_only = true},
                           ls::ModelCheckpoint{.filepath = folder / "run"}},
             .progress = ls::ProgressStyle::none});
  auto weights = make(), all = make();
  weights.load_weights(folder / "w3.safetensors");
  all.load_checkpoint(folder / "run");
  CHECK(weights.weights_sha256() == model.weights_sha256());
  CHECK(all.weights_sha256() == model.weights_sha256());
  CHECK(all.steps() == 6);
  CHECK(ls::detail::CheckpointDirectory(folder / "run").steps() == std::vector<std::uint64_t>{6});
  weights.load_weights(folder / "w2.safetensors");
  CHECK(weights.weights_sha256() != model.weights_sha256());
}
