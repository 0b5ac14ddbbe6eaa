// A run that crashes at any step and continues from its checkpoints ends with the same bits as one
// that was never interrupted.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stop_token>

#include "lockstep/core/numbers/crc32c.hpp"
#include "lockstep/reference.hpp"
#include "resume_support.hpp"
#include "support/peak_memory.hpp"

namespace ls = lockstep;
using Catch::Matchers::ContainsSubstring;
using resume::train, resume::train_with_crashes;

namespace {

using Device = ls::Reference<float>;

struct Net : ls::Sequential<ls::Input<8, 8, 1>, ls::RandomFlip<ls::horizontal>, ls::Conv2D<3, 3>,
                            ls::BatchNormalization<>, ls::ReLU, ls::Flatten,
                            ls::GaussianNoise<ls::stddev(0.1f)>, ls::Dropout<ls::rate(0.25f)>,
                            ls::Dense<4, ls::kernel_regularizer(ls::L2{1e-3})>> {};

/// 50 random images of 4 classes: epochs of 7 steps, the last one with 2 images.
auto images() {
  std::vector<float> x;
  std::vector<std::int32_t> y;
  ls::Philox g(5);
  for (int i = 0; i < 50; ++i) {
    y.push_back(i % 4);
    for (int k = 0; k < 64; ++k) x.push_back(static_cast<float>(g.normal() + (k / 16 == i % 4)));
  }
  return ls::tensors(x, ls::shape(8, 8, 1), y);
}
auto batches() { return images() | ls::shuffle(20) | ls::batch(8); }
auto validation() { return images() | ls::take(20) | ls::batch(10); }

template <class Optimizer, class Strategy = ls::OneDevice<Device>>
auto maker(Optimizer optimizer, Strategy strategy = {}) {
  return [=] {
    return ls::Model{Net{},     ls::Seed{3},
                     strategy,  ls::SparseCategoricalCrossentropy{.from_logits = true},
                     optimizer, ls::Accuracy{}};
  };
}

ls::FitOptions options(const ls::CheckpointOptions& checkpoint, const ls::Callbacks& extra) {
  ls::FitOptions o{.epochs = 4, .checkpoint = checkpoint, .progress = ls::ProgressStyle::none};
  o.callbacks = extra;
  return o;
}

/// Crashes at a few steps of the 28: within epochs, at their ends, twice in a row.
const std::set<std::uint64_t> crashes{1, 3, 4, 7, 8, 14, 15, 20, 21, 22, 27};

/// Compares the uninterrupted run with the one that crashes.
template <class Make, class Fit>
void check_resumes(const Make& make, const Fit& fit, std::uint64_t every = 1) {
  const testing::Folder folder;
  const auto quiet = train(make, fit, {});
  for (const bool asynchronous : {false, true}) {
    const ls::CheckpointOptions checkpoint{
        .directory = folder / ("run" + std::to_string(asynchronous)),
        .every = every,
        .asynchronous = asynchronous};
    const resume::Log lines;
    CHECK(train_with_crashes(make, fit, checkpoint, crashes) == quiet);
    CHECK_THAT(lines.text, ContainsSubstring("training continues after"));
  }
}

const auto plain = [](auto& model, const auto& checkpoint, const auto& extra) {
  return model.fit(batches(), options(checkpoint, extra));
};

}  // namespace

TEST_CASE("a crash at any step changes nothing: augmentation, dropout, noise, running statistics") {
  check_resumes(maker(ls::SGD{.learning_rate = 0.05, .momentum = 0.9}), plain);
}

TEST_CASE("a crash changes nothing with Adam, averages, accumulation, clipping and a schedule") {
  check_resumes(maker(ls::Adam{.learning_rate = ls::ExponentialDecay{0.01, 3, 0.9},
                               .weight_decay = 1e-3,
                               .with = {.global_clipnorm = 1,
                                        .use_ema = true,
                                        .ema_momentum = 0.9,
                                        .ema_overwrite_frequency = 5,
                                        .gradient_accumulation_steps = 2}}),
                plain);
}

TEST_CASE("a crash changes nothing when checkpoints are rare, or only at the ends of epochs") {
  check_resumes(maker(ls::RMSprop{}), plain, 5);
  check_resumes(maker(ls::RMSprop{}), plain, 0);
}

TEST_CASE("a crash changes nothing with steps_per_epoch, prefetch and class weights") {
  check_resumes(maker(ls::Adagrad{}), [](auto& model, const auto& checkpoint, const auto& extra) {
    auto o = options(checkpoint, extra);
    o.steps_per_epoch = 7;
    o.class_weight = {{0, 2.0}, {3, 0.5}};
    return model.fit(images() | ls::shuffle(20) | ls::repeat | ls::batch(8) | ls::prefetch(2), o);
  });
}

TEST_CASE("a crash changes nothing with callbacks that have a state, and with validation") {
  check_resumes(maker(ls::SGD{.learning_rate = 0.05}), [](auto& model, const auto& checkpoint,
                                                          const auto& extra) {
    auto o = options(checkpoint, {});
    o.epochs = 6;
    o.callbacks = {ls::EarlyStopping{.patience = 1, .restore_best_weights = true},
                   ls::EarlyStopping{.monitor = "val_accuracy", .patience = 5},
                   ls::ReduceLROnPlateau{.factor = 0.5, .patience = 1, .min_delta = 1},
                   ls::LearningRateScheduler{[](int, double rate) { return rate * 0.9; }}};
    o.callbacks.insert(o.callbacks.end(), extra.begin(), extra.end());
    return model.fit(batches(), validation(), o);
  });
}

TEST_CASE("a crash changes nothing with a step of the program") {
  check_resumes(maker(ls::Adam{.learning_rate = 0.01}),
                [](auto& model, const auto& checkpoint, const auto& extra) {
                  return model.fit(batches(), options(checkpoint, extra), [&](const auto& batch) {
                    auto gradients = model.gradients_of(batch);
                    gradients *= 0.5 / std::max(1.0, gradients.norm());
                    model.apply(gradients);
                  });
                });
}

TEST_CASE("a loop of the program's own that crashes continues exactly, also within a pass") {
  const auto make = maker(ls::Adam{.learning_rate = 0.01});
  const auto loop = [](auto& model, const std::string& directory, std::uint64_t crash) {
    while (model.passes() < 4)
      for (const auto& batch : model.batches(batches())) {
        model.train_step(batch);
        if (!directory.empty() && model.steps() % 3 == 0) model.save_checkpoint(directory);
        if (model.steps() == crash) throw resume::Crash{};
      }
  };
  const testing::Folder folder;
  auto quiet = make();
  loop(quiet, "", 0);
  REQUIRE(quiet.steps() == 28);
  for (const std::uint64_t crash : {4u, 7u, 8u, 14u, 15u, 16u, 27u, 0u}) {
    auto model = make();
    if (std::filesystem::exists(folder / "run")) model.load_checkpoint(folder / "run");
    if (crash > 0)
      CHECK_THROWS_AS(loop(model, folder / "run", crash), resume::Crash);
    else
      loop(model, folder / "run", crash);
    if (crash == 0) CHECK(resume::state_of(model) == resume::state_of(quiet));
  }
}

TEST_CASE("a crash changes nothing with several steps per execution") {
  const testing::Folder folder;
  const auto make = maker(ls::SGD{.learning_rate = 0.05});
  const auto fit = [](auto& model, const auto& checkpoint, const auto& extra) {
    auto o = options(checkpoint, extra);
    o.steps_per_execution = 3;
    return model.fit(batches(), o);
  };
  const resume::Log lines;
  // The hook after 3 steps counts one call.
  CHECK(train_with_crashes(make, fit, {.directory = folder / "run", .every = 4}, {1, 2, 4, 5}) ==
        train(make, fit, {}));
}

TEST_CASE("with virtual shards a run continues on other numbers of replicas with the same bits") {
  const testing::Folder folder;
  const resume::Log lines;
  const auto on = [](std::size_t replicas) {
    return maker(ls::Adam{}, ls::Mirrored<Device>{.replicas = replicas, .virtual_shards = 4});
  };
  const auto weights = [](auto& model) { return model.weights_sha256(); };
  auto quiet = on(1)();
  plain(quiet, ls::CheckpointOptions{}, ls::Callbacks{});
  const ls::CheckpointOptions checkpoint{.directory = folder / "run", .every = 1};
  std::uint64_t crash = 5;
  for (const std::size_t replicas : {4, 2, 1, 2}) {
    auto model = on(replicas)();
    CHECK_THROWS_AS(
        plain(model, checkpoint, ls::Callbacks{std::make_shared<resume::CrashAfter>(crash)}),
        resume::Crash);
    crash += 5;
  }
  auto last = on(4)();
  plain(last, checkpoint, ls::Callbacks{});
  CHECK(weights(last) == weights(quiet));
}

TEST_CASE(
    "without virtual shards another number of replicas continues up to rounding, with a warning") {
  const testing::Folder folder;
  const auto on = [](std::size_t replicas) {
    return maker(ls::SGD{.learning_rate = 0.05}, ls::Mirrored<Device>{.replicas = replicas});
  };
  auto quiet = on(2)();
  const auto expected = plain(quiet, ls::CheckpointOptions{}, ls::Callbacks{});
  const ls::CheckpointOptions checkpoint{.directory = folder / "run", .every = 1};
  const resume::Log lines;
  {
    auto model = on(2)();
    CHECK_THROWS_AS(
        plain(model, checkpoint, ls::Callbacks{std::make_shared<resume::CrashAfter>(20)}),
        resume::Crash);
  }
  auto model = on(1)();
  const auto found = plain(model, checkpoint, ls::Callbacks{});
  CHECK_THAT(lines.text, ContainsSubstring(
                             "results continue up to rounding only: it has 1 replicas and had 2"));
  REQUIRE(found["loss"].size() == 4);
  // The last epoch was trained in the new model; running statistics are those of a batch now.
  CHECK(std::abs(found["loss"].back() - expected["loss"].back()) < 0.2);
}

TEST_CASE("a stop token saves a checkpoint of the last step, from which the run continues") {
  const testing::Folder folder;
  const auto make = maker(ls::Adam{});
  const auto quiet = train(make, plain, {});
  const ls::CheckpointOptions checkpoint{.directory = folder / "run"};  // at the ends of epochs
  const resume::Log lines;
  for (const std::size_t stop_at : {2, 5, 7}) {  // also the last step of an epoch
    std::stop_source source;
    struct Stop : ls::Callback {
      Stop(std::stop_source s, std::size_t n) : source(std::move(s)), left(n) {}
      void on_train_batch_end(std::size_t, const ls::Logs&) override {
        if (left-- == 1) source.request_stop();
      }
      std::stop_source source;
      std::size_t left;
    };
    auto model = make();
    auto o = options(checkpoint, {});
    o.callbacks = {std::make_shared<Stop>(source, stop_at)};
    o.stop = source.get_token();
    const std::uint64_t before =
        ls::detail::CheckpointDirectory(folder / "run").steps().empty()
            ? 0
            : ls::detail::CheckpointDirectory(folder / "run").steps().back();
    model.fit(batches(), o);
    CHECK(model.steps() == before + stop_at);
    CHECK(ls::detail::CheckpointDirectory(folder / "run").steps().back() == model.steps());
  }
  CHECK(train(make, plain, checkpoint) == quiet);
}

TEST_CASE("a stop within validation leaves the epoch unfinished, and the validation is repeated") {
  const testing::Folder folder;
  const resume::Log lines;
  struct StopInTest : ls::Callback {
    StopInTest(std::stop_source s, int e) : source(std::move(s)), at(e) {}
    void on_epoch_begin(int number, const ls::Logs&) override { epoch = number; }
    void on_test_batch_begin(std::size_t, const ls::Logs&) override {
      if (epoch == at) source.request_stop();
    }
    std::stop_source source;
    int at, epoch = 0;
  };
  const auto run = [&](const ls::CheckpointOptions& checkpoint, int stop_in_epoch) {
    const std::stop_source source;
    auto model = maker(ls::SGD{.learning_rate = 0.05})();
    auto o = options(checkpoint, {});
    o.callbacks = {ls::ReduceLROnPlateau{.factor = 0.5, .patience = 1, .min_delta = 1},
                   std::make_shared<StopInTest>(source, stop_in_epoch)};
    o.stop = source.get_token();
    const auto history = model.fit(batches(), validation(), o);
    return std::pair(history.epoch.size() == 4 ? history["val_loss"] : std::vector<double>{},
                     resume::state_of(model));
  };
  const auto quiet = run({}, -1);
  const ls::CheckpointOptions checkpoint{.directory = folder / "run"};
  for (const int epoch : {1, 3}) CHECK(run(checkpoint, epoch).first.empty());
  CHECK(run(checkpoint, -1) == quiet);
}

TEST_CASE("fewer epochs than the checkpoint has still return their history") {
  const testing::Folder folder;
  const resume::Log lines;
  const auto make = maker(ls::SGD{.learning_rate = 0.05});
  auto model = make();
  CHECK_THROWS_AS(plain(model, ls::CheckpointOptions{.directory = folder / "run", .every = 1},
                        ls::Callbacks{std::make_shared<resume::CrashAfter>(24)}),
                  resume::Crash);
  auto o = options({.directory = folder / "run", .every = 1}, {});
  o.epochs = 2;
  auto second = make();
  CHECK(second.fit(batches(), o).epoch == std::vector{0, 1, 2});
}

TEST_CASE("damaged checkpoints do not count among those that are kept") {
  const testing::Folder folder;
  const resume::Log lines;
  const auto make = maker(ls::SGD{.learning_rate = 0.05});
  auto first = make();
  CHECK_THROWS_AS(
      plain(first, ls::CheckpointOptions{.directory = folder / "run", .every = 5, .keep = 2},
            ls::Callbacks{std::make_shared<resume::CrashAfter>(13)}),
      resume::Crash);
  const ls::detail::CheckpointDirectory directory(folder / "run");
  REQUIRE(directory.steps() == std::vector<std::uint64_t>{5, 10});
  std::ofstream(directory.path_of(10) + "/weights.safetensors", std::ios::app) << "x";
  auto second = make();
  CHECK_THROWS_AS(
      plain(second, ls::CheckpointOptions{.directory = folder / "run", .every = 3, .keep = 2},
            ls::Callbacks{std::make_shared<resume::CrashAfter>(8)}),
      resume::Crash);
  CHECK(directory.steps() == std::vector<std::uint64_t>{5, 6});
}

TEST_CASE("a run that has ended is not trained again, and more epochs continue it") {
  const testing::Folder folder;
  const auto make = maker(ls::Adam{.with = {.use_ema = true}});
  const ls::CheckpointOptions checkpoint{.directory = folder / "run"};
  const resume::Log lines;
  const auto first = train(make, plain, checkpoint);
  CHECK_THAT(lines.text, !ContainsSubstring("training ended"));
  CHECK(train(make, plain, checkpoint) == first);
  CHECK_THAT(lines.text, ContainsSubstring("training ended after 28 steps and 4 epochs; use more"));
  const auto longer = [](auto& model, const auto& c, const auto& extra) {
    auto o = options(c, extra);
    o.epochs = 6;
    return model.fit(batches(), o);
  };
  CHECK(train(make, longer, checkpoint) == train(make, longer, {}));

  const ls::CheckpointOptions other{.directory = folder / "early"};
  const auto early = [](auto& model, const auto& c, const auto& extra) {
    auto o = options(c, extra);
    o.callbacks = {ls::EarlyStopping{.monitor = "loss", .min_delta = 100, .patience = 1}};
    return model.fit(batches(), o);
  };
  const auto ended = train(make, early, other);
  CHECK(ended.epochs.size() == 2);
  CHECK(train(make, early, other) == ended);
  CHECK_THAT(lines.text,
             ContainsSubstring("training ended after 14 steps and 2 epochs; use another"));
}

TEST_CASE("another model, optimizer, seed, batch or data set is refused by field") {
  const testing::Folder folder;
  const ls::CheckpointOptions checkpoint{.directory = folder / "run"};
  const resume::Log lines;
  train(maker(ls::SGD{.learning_rate = 0.05}), plain, checkpoint);
  const auto refused = [&](const auto& make, const auto& fit, const char* field) {
    auto model = make();
    CHECK_THROWS_WITH(fit(model, checkpoint, ls::Callbacks{}),
                      ContainsSubstring(std::string(": ") + field + " was "));
    CHECK(model.steps() == 0);
  };
  const auto sgd = ls::SGD{.learning_rate = 0.05};
  refused(maker(ls::SGD{.learning_rate = 0.06}), plain, "optimizer");
  refused(maker(ls::Adam{}), plain, "optimizer");
  refused(
      [&] {
        return ls::Model{Net{},
                         ls::Seed{4},
                         ls::OneDevice<Device>{},
                         ls::SparseCategoricalCrossentropy{.from_logits = true},
                         sgd,
                         ls::Accuracy{}};
      },
      plain, "seed");
  refused(
      [&] {
        return ls::Model{Net{}, ls::Seed{3}, ls::OneDevice<Device>{},
                         ls::SparseCategoricalCrossentropy{.from_logits = true}, sgd};
      },
      plain, "metrics");
  struct Other : ls::Sequential<ls::Input<8, 8, 1>, ls::Flatten, ls::Dense<4>> {};
  refused(
      [&] {
        return ls::Model{Other{},
                         ls::Seed{3},
                         ls::OneDevice<Device>{},
                         ls::SparseCategoricalCrossentropy{.from_logits = true},
                         sgd,
                         ls::Accuracy{}};
      },
      plain, "layers");
  const auto with = [](auto data) {
    return [data](auto& model, const auto& c, const auto& extra) {
      return model.fit(data, options(c, extra));
    };
  };
  refused(maker(sgd), with(images() | ls::shuffle(20) | ls::batch(9)), "global batch");
  refused(maker(sgd), with(images() | ls::take(40) | ls::shuffle(20) | ls::batch(8)),
          "training examples");
  refused(maker(sgd), with(images() | ls::batch(8)), "order of the examples");
  const auto negated = images() | ls::map([](auto& e) { e.x[0] = -e.x[0] - 1; });
  refused(maker(sgd), with(negated | ls::shuffle(20) | ls::batch(8)), "features of the examples");
  const auto relabelled = images() | ls::map([](auto& e) { e.y[0] = (e.y[0] + 1) % 4; });
  refused(maker(sgd), with(relabelled | ls::shuffle(20) | ls::batch(8)), "targets of the examples");
  // Allowed: other epochs, another frequency, other callbacks.
  const auto other = [](auto& model, auto c, const auto&) {
    c.every = 3;
    auto o = options(c, {});
    o.epochs = 5;
    o.callbacks = {ls::EarlyStopping{.monitor = "loss", .patience = 9}};
    return model.fit(batches(), o);
  };
  CHECK(train(maker(sgd), other, checkpoint).epochs.size() == 5);
}

TEST_CASE(
    "the newest undamaged checkpoint is used, each damaged one is named, and none is an error") {
  const testing::Folder folder;
  const auto make = maker(ls::SGD{.learning_rate = 0.05});
  const ls::CheckpointOptions checkpoint{.directory = folder / "run", .every = 3, .keep = 0};
  const auto quiet = train(make, plain, checkpoint);
  const ls::detail::CheckpointDirectory directory(folder / "run");
  const auto steps = directory.steps();
  REQUIRE(steps.size() > 5);
  const auto damage = [&](std::uint64_t step) {
    std::ofstream(directory.path_of(step) + "/weights.safetensors", std::ios::app) << "x";
  };
  damage(steps[steps.size() - 1]);
  damage(steps[steps.size() - 2]);
  {
    const resume::Log lines;
    CHECK(train(make, plain, checkpoint) == quiet);
    CHECK_THAT(lines.text,
               ContainsSubstring(directory.path_of(steps[steps.size() - 1])) &&
                   ContainsSubstring(directory.path_of(steps[steps.size() - 2])) &&
                   ContainsSubstring("training continues after " +
                                     std::to_string(steps[steps.size() - 3]) + " steps"));
  }
  for (const std::uint64_t step : directory.steps()) damage(step);
  const resume::Log lines;
  auto model = make();
  CHECK_THROWS_WITH(plain(model, checkpoint, ls::Callbacks{}),
                    ContainsSubstring("no checkpoint is undamaged"));
}

TEST_CASE("without resume a directory with checkpoints is refused, and an empty one is used") {
  const testing::Folder folder;
  const auto make = maker(ls::SGD{});
  const ls::CheckpointOptions anew{.directory = folder / "run", .resume = false};
  train(make, plain, anew);
  auto model = make();
  CHECK_THROWS_WITH(plain(model, anew, ls::Callbacks{}), ContainsSubstring("resume it, or choose"));
}

TEST_CASE("the newest checkpoints and the best one are kept") {
  const testing::Folder folder;
  const ls::CheckpointOptions checkpoint{
      .directory = folder / "run", .keep = 2, .best = "accuracy"};
  auto model = maker(ls::SGD{.learning_rate = 0.05})();
  struct Log : ls::Callback {  // the accuracy is best in epoch 2 of 6
    void on_epoch_end(int epoch, const ls::Logs&) override {
      control().log("score", epoch == 1 ? 2.0 : 1.0 / (1 + epoch));
    }
  };
  auto o = options(checkpoint, {});
  o.checkpoint.best = "score";
  o.checkpoint.mode = ls::MonitorMode::max;
  o.epochs = 6;
  o.callbacks = {std::make_shared<Log>()};
  model.fit(batches(), o);
  const ls::detail::CheckpointDirectory directory(folder / "run");
  CHECK(directory.steps() == std::vector<std::uint64_t>{2 * 7, 5 * 7, 6 * 7});
  const auto best = [&] {
    std::ifstream file(folder / "run" + "/best");
    std::string line;
    std::getline(file, line);
    return line;
  };
  CHECK(best() == "step-000000014");
  // Also by a run that continues.
  auto second = maker(ls::SGD{.learning_rate = 0.05})();
  const resume::Log lines;
  o.epochs = 8;
  second.fit(batches(), o);
  CHECK(directory.steps() == std::vector<std::uint64_t>{2 * 7, 7 * 7, 8 * 7});
  // A run that monitors another value begins with its own first one.
  auto third = maker(ls::SGD{.learning_rate = 0.05})();
  o.checkpoint.best = "loss";
  o.checkpoint.mode = ls::MonitorMode::min;
  o.epochs = 9;
  third.fit(batches(), o);
  CHECK(best() == "step-000000063");
}

namespace {

/// Logs the score of golden/data/checkpoints/format_1, which was 2.5 after epoch 2.
struct Score : ls::Callback {
  void on_epoch_end(int epoch, const ls::Logs&) override {
    control().log("score", epoch == 1 ? 2.5 : 1.0);
  }
};

}  // namespace

// Written by the version of November 2026, in which the best value was the state of a callback.
TEST_CASE("a stored checkpoint of an earlier version continues, with its best value") {
  const testing::Folder folder;
  std::filesystem::copy(std::filesystem::path(LOCKSTEP_GOLDEN_DIR) / "checkpoints/format_1",
                        folder / "run", std::filesystem::copy_options::recursive);
  const auto train = [](const std::string& run, int epochs) {
    using Line = ls::Sequential<ls::Input<2>, ls::Dense<1>>;
    ls::Model model{Line{}, ls::OneDevice<ls::Reference<double>>{}, ls::MeanSquaredError{},
                    ls::SGD{.learning_rate = 0.0625, .momentum = 0.5}};
    ls::FitOptions o{.epochs = epochs, .callbacks = {std::make_shared<Score>()}};
    o.checkpoint = {.directory = run, .keep = 1, .best = "score", .mode = ls::MonitorMode::max};
    o.progress = ls::ProgressStyle::none;
    model.fit(ls::tensors(std::vector<double>{1, 0, 0, 1, 1, 1, 2, 1}, ls::shape(2),
                          std::vector<double>{1, 2, 3, 4}, ls::shape(1)) |
                  ls::batch(2),
              o);
    return resume::state_of(model);
  };
  const resume::Log lines;
  CHECK(train(folder / "run", 4) == train(folder / "whole", 4));
  CHECK(lines.text.find("has the state of") == std::string::npos);
  CHECK(ls::detail::CheckpointDirectory(folder / "run").steps() ==
        std::vector<std::uint64_t>{4, 8});
  std::ifstream best(folder / "run" + "/best");
  std::string line;
  std::getline(best, line);
  CHECK(line == "step-000000004");
}

TEST_CASE("a better checkpoint that cannot be written does not remove the best one") {
  const testing::Folder folder;
  const resume::Log lines;
  static int saves = 0;
  saves = 0;
  ls::detail::checkpoint_fault() = [](std::string_view operation) {
    saves += operation == "mkdir entry";
    return saves == 3 && operation == "fsync weights.safetensors" ? ENOSPC : 0;
  };
  struct Log : ls::Callback {  // best in epoch 3, then in epoch 1
    void on_epoch_end(int epoch, const ls::Logs&) override {
      control().log("score", epoch == 2 ? 3.0 : 2.0 / (1 + epoch));
    }
  };
  auto model = maker(ls::SGD{.learning_rate = 0.05})();
  auto o = options({.directory = folder / "run", .keep = 1, .best = "score"}, {});
  o.checkpoint.mode = ls::MonitorMode::max;
  o.epochs = 5;
  o.callbacks = {std::make_shared<Log>()};
  model.fit(batches(), o);
  ls::detail::checkpoint_fault() = nullptr;
  CHECK(ls::detail::CheckpointDirectory(folder / "run").steps() ==
        std::vector<std::uint64_t>{7, 5 * 7});
}

TEST_CASE("an old checkpoint that cannot be removed ends neither training nor its checkpoints") {
  const testing::Folder folder;
  const resume::Log lines;
  ls::detail::checkpoint_fault() = [](std::string_view operation) {
    return operation == "rename old entry" ? EACCES : 0;
  };
  auto model = maker(ls::SGD{.learning_rate = 0.05})();
  auto o = options({.directory = folder / "run", .keep = 1, .required = true}, {});
  o.epochs = 3;
  model.fit(batches(), o);
  ls::detail::checkpoint_fault() = nullptr;
  CHECK(ls::detail::CheckpointDirectory(folder / "run").steps() ==
        std::vector<std::uint64_t>{7, 14, 21});
  CHECK_THAT(lines.text, ContainsSubstring("step-000000007: cannot be removed") &&
                             ContainsSubstring("an older checkpoint remains"));
  CHECK_THAT(lines.text, !ContainsSubstring("training goes on without it"));
}

TEST_CASE("a run whose data ran out at the end of an epoch has nothing left to resume") {
  const testing::Folder folder;
  const resume::Log lines;
  for (const int start : {1, 2}) {
    CAPTURE(start);
    auto model = maker(ls::SGD{.learning_rate = 0.05})();
    auto o = options({.directory = folder / "run"}, {});
    o.epochs = 5;
    o.steps_per_epoch = 7;  // all that there is, once
    model.fit(batches(), o);
    CHECK(model.steps() == 7);
  }
}

TEST_CASE("a checkpoint that cannot be written is logged, or ends training if it is required") {
  const auto make = maker(ls::SGD{});
  for (const bool required : {false, true}) {
    const testing::Folder folder;
    const resume::Log lines;
    ls::detail::checkpoint_fault() = [](std::string_view operation) {
      return operation == "fsync weights.safetensors" ? EIO : 0;
    };
    auto model = make();
    const ls::CheckpointOptions checkpoint{.directory = folder / "run", .required = required};
    if (required)
      CHECK_THROWS_AS(plain(model, checkpoint, ls::Callbacks{}), ls::FileError);
    else
      plain(model, checkpoint, ls::Callbacks{});
    ls::detail::checkpoint_fault() = nullptr;
    CHECK(model.steps() == (required ? 14 : 28));
    if (!required)
      CHECK_THAT(lines.text, ContainsSubstring("cannot be synced to disk") &&
                                 ContainsSubstring("training goes on without it"));
  }
}

TEST_CASE("CSVLogger continues its file, without the lines of epochs that are trained again") {
  const testing::Folder folder;
  const auto make = maker(ls::SGD{.learning_rate = 0.05});
  const auto text = [&](const std::string& path) {
    std::ifstream in(path);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const auto fit_to = [&](const std::string& path) {
    return [path](auto& model, const auto& checkpoint, const auto& extra) {
      auto o = options(checkpoint, {});
      o.callbacks = {ls::CSVLogger{.filename = path}};
      o.callbacks.insert(o.callbacks.end(), extra.begin(), extra.end());
      return model.fit(batches(), o);
    };
  };
  train(make, fit_to(folder / "quiet.csv"), {});
  const resume::Log lines;
  // Crashes after the first step of an epoch whose end has no checkpoint yet.
  train_with_crashes(make, fit_to(folder / "crashed.csv"),
                     {.directory = folder / "run", .every = 10}, {8, 15, 22});
  CHECK(text(folder / "crashed.csv") == text(folder / "quiet.csv"));
}

TEST_CASE("CSVLogger keeps its columns when fit resumes in an epoch with validation") {
  const testing::Folder folder;
  const resume::Log lines;
  const auto make = maker(ls::SGD{.learning_rate = 0.05});
  const auto fit_to = [&](const std::string& path) {
    return [path](auto& model, const auto& checkpoint, const auto& extra) {
      auto o = options(checkpoint, {});
      o.validation_freq = 2;
      o.callbacks = {ls::LearningRateScheduler{[](int, double rate) { return rate * 0.5; }},
                     ls::CSVLogger{.filename = path}};
      o.callbacks.insert(o.callbacks.end(), extra.begin(), extra.end());
      return model.fit(batches(), batches(), o);
    };
  };
  train(make, fit_to(folder / "quiet.csv"), {});
  // In epoch 1, which has validation and is the first that the process sees; epochs have 7 steps.
  train_with_crashes(make, fit_to(folder / "crashed.csv"),
                     {.directory = folder / "run", .every = 3, .asynchronous = false}, {10});
  const auto text = [](const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const std::string quiet = text(folder / "quiet.csv");
  CHECK(quiet.starts_with("epoch,accuracy,learning_rate,loss,val_accuracy,val_loss\r\n0,"));
  CHECK(text(folder / "crashed.csv") == quiet);
}

TEST_CASE("save_checkpoint and load_checkpoint continue a custom loop") {
  const testing::Folder folder;
  const resume::Log lines;
  const auto make = maker(ls::Adam{});
  const std::vector<float> x(4 * 64, 0.5f);
  const std::vector<std::int32_t> y{0, 1, 2, 3};
  auto quiet = make();
  for (int i = 0; i < 6; ++i) quiet.train_on_batch(x, y);
  auto first = make();
  for (int i = 0; i < 3; ++i) first.train_on_batch(x, y);
  first.set_learning_rate(first.learning_rate());
  first.clear_learning_rate();
  first.save_checkpoint(folder / "run");
  auto second = make();
  second.load_checkpoint(folder / "run");
  CHECK(second.steps() == 3);
  for (int i = 0; i < 3; ++i) second.train_on_batch(x, y);
  CHECK(resume::state_of(second) == resume::state_of(quiet));
  CHECK_THROWS_WITH(second.load_checkpoint(folder / "none"),
                    ContainsSubstring("it has no checkpoint"));
  auto other = maker(ls::SGD{})();
  CHECK_THROWS_WITH(other.load_checkpoint(folder / "run"), ContainsSubstring("optimizer was"));
}

TEST_CASE("save_checkpoint keeps as many checkpoints as fit does") {
  const testing::Folder folder;
  auto model = maker(ls::SGD{})();
  const std::vector<float> x(4 * 64, 0.5f);
  const std::vector<std::int32_t> y{0, 1, 2, 3};
  for (int i = 0; i < 6; ++i) {
    model.train_on_batch(x, y);
    model.save_checkpoint(folder / "run");
    model.save_checkpoint(folder / "one", 1);
    model.save_checkpoint(folder / "all", 0);
  }
  using Steps = std::vector<std::uint64_t>;
  const auto steps = [&](const char* name) {
    return ls::detail::CheckpointDirectory(folder / name).steps();
  };
  CHECK(steps("run") == Steps{4, 5, 6});
  CHECK(steps("one") == Steps{6});
  CHECK(steps("all") == Steps{1, 2, 3, 4, 5, 6});
}

TEST_CASE("a manifest that lists more bytes than the model can have is refused before it is read") {
  const testing::Folder folder;
  const resume::Log lines;
  auto model = maker(ls::SGD{})();
  model.save_checkpoint(folder / "run");
  const std::string entry = folder / "run/step-000000000/";
  const auto text = [&](const std::string& path) {
    std::ifstream in(path);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const std::string before = text(entry + "manifest.json");
  constexpr std::uintmax_t huge = 3'000'000'000;  // in a sparse file
  for (const std::string name : {"weights", "optimizer", "callbacks", "unknown"}) {
    CAPTURE(name);
    const std::string file = name + ".safetensors";
    std::string changed = before;
    const std::size_t listed = changed.find(name == "unknown" ? "weights.s" : file);
    REQUIRE(listed != std::string::npos);
    if (name == "unknown") changed.replace(listed, 7, name);
    const std::size_t size = changed.find("\"size\": ", listed) + 8;
    changed.replace(size, changed.find(',', size) - size, std::to_string(huge));
    std::string head = changed.substr(0, changed.rfind("  \"crc32c\": \""));
    char sum[9];
    std::snprintf(sum, sizeof sum, "%08x", ls::detail::crc32c(head.data(), head.size()));
    std::ofstream(entry + "manifest.json") << head << "  \"crc32c\": \"" << sum << "\"\n}\n";
    const bool is_new = !std::filesystem::exists(entry + file);
    if (is_new) std::ofstream(entry + file) << "x";
    const auto size_before = std::filesystem::file_size(entry + file);
    std::filesystem::resize_file(entry + file, huge);
    CHECK_THROWS_AS(model.load_checkpoint(folder / "run"), ls::CheckpointError);
    CHECK_THAT(lines.text, ContainsSubstring("it lists \"" + file + "\" with 3000000000 bytes"));
    // Another model is named by the difference, as with the right sizes.
    auto other = maker(ls::Adam{})();
    CHECK_THROWS_WITH(other.load_checkpoint(folder / "run"), ContainsSubstring("optimizer was"));
    std::filesystem::resize_file(entry + file, size_before);
    if (is_new) std::filesystem::remove(entry + file);
  }
  std::ofstream(entry + "manifest.json") << before;
  CHECK_NOTHROW(model.load_checkpoint(folder / "run"));
}

// Files of 24 MB are read, compared with their checksums, and copied in parts.
TEST_CASE("saving and loading a checkpoint copy the state at most once, in addition to the files") {
  struct Wide : ls::Sequential<ls::Input<1000>, ls::Dense<2000>, ls::Dense<2>> {};
  const testing::Folder folder;
  ls::Model model{Wide{}, ls::OneDevice<Device>{}, ls::MeanSquaredError{}, ls::Adam{}};
  const std::int64_t weights = 4 * 2'006'002, state = 3 * weights, noise = 2 << 20;
  const auto peak_of = [&](const auto& run) -> std::int64_t {
    const auto before = testing::begin_peak();
    run();
    return before ? testing::memory_of_this_process("VmHWM") - *before : 0;
  };
  CHECK(peak_of([&] { model.save_checkpoint(folder / "run"); }) < state + noise);
  CHECK(peak_of([&] { model.load_checkpoint(folder / "run"); }) < state + 2 * weights + noise);
  CHECK(peak_of([&] { model.save_weights(folder / "w.safetensors"); }) < weights + noise);
  CHECK(peak_of([&] { model.load_weights(folder / "w.safetensors"); }) < 2 * weights + noise);
}

TEST_CASE("the weights of a checkpoint are a file for load_weights") {
  const testing::Folder folder;
  auto model = maker(ls::SGD{})();
  plain(model, ls::CheckpointOptions{.directory = folder / "run"}, ls::Callbacks{});
  const ls::detail::CheckpointDirectory directory(folder / "run");
  auto other = maker(ls::Adam{})();
  other.load_weights(directory.path_of(model.steps()) + "/weights.safetensors");
  CHECK(other.weights_sha256() == model.weights_sha256());
}
