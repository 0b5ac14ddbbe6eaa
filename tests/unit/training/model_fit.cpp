#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <numeric>
#include <stop_token>
#include <string>
#include <vector>

#include "unit/training/model_support.hpp"

namespace {

using namespace line;  // NOLINT: the fixture of this file
using Strings = std::vector<std::string>;

struct Identity : ls::Sequential<ls::Input<1>, ls::Reshape<ls::shape(1)>> {};

std::size_t occurrences(const Strings& hooks, const std::string& what) {
  return static_cast<std::size_t>(std::count(hooks.begin(), hooks.end(), what));
}

}  // namespace

TEST_CASE("history has Keras' keys, one value for each epoch, validation where it ran") {
  auto m = classifier();
  auto options = quiet(4);
  options.validation_freq = 2;
  const auto history = m.fit(classes() | ls::batch(16), classes(12) | ls::batch(5), options);
  CHECK(history.names() == Strings{"loss", "accuracy", "val_loss", "val_accuracy"});
  CHECK(history.epoch == std::vector<int>{0, 1, 2, 3});
  CHECK(history["loss"].size() == 4);
  CHECK(history["accuracy"].size() == 4);
  CHECK(history["val_loss"].size() == 2);
  CHECK(history["loss"].back() < history["loss"].front());
  CHECK(m.steps() == 4 * 3);
}

TEST_CASE("validation_split trains and validates as with two separate data sets") {
  auto split = model(), by_hand = model();
  const auto history =
      split.fit(points() | ls::shuffle(10) | ls::batch(3), ls::validation_split(0.3), quiet(4));
  const auto expected = by_hand.fit(points() | ls::take(7) | ls::shuffle(10) | ls::batch(3),
                                    points() | ls::skip(7) | ls::batch(3), quiet(4));
  CHECK(history.names() == Strings{"loss", "val_loss"});
  CHECK(history["loss"] == expected["loss"]);
  CHECK(history["val_loss"] == expected["val_loss"]);
  CHECK(split.steps() == 4 * 3);
}

TEST_CASE("validation_split divides the data of a fit with a step, too") {
  auto own = model(), plain = model();
  const auto data = points() | ls::shuffle(10) | ls::batch(3);
  const auto step = [&](auto batch) { return own.train_step(batch); };
  const auto history = own.fit(data, ls::validation_split(0.3), quiet(4), step);
  const auto expected = plain.fit(data, ls::validation_split(0.3), quiet(4));
  CHECK(history.names() == Strings{"loss", "val_loss"});
  CHECK(history["loss"] == expected["loss"]);
  CHECK(history["val_loss"] == expected["val_loss"]);
}

TEST_CASE("callbacks see an execution of several steps as one batch, as in Keras") {
  auto plain = model(), together = model();
  const auto data = points() | ls::shuffle(10) | ls::batch(2);  // five steps
  auto options = quiet(2);
  const auto expected = plain.fit(data, options);
  auto record = std::make_shared<Recorder>();
  options.callbacks = {record};
  options.steps_per_execution = 3;
  const auto history = together.fit(data, options);
  CHECK(history["loss"] == expected["loss"]);
  CHECK(together.weights_sha256() == plain.weights_sha256());
  CHECK(together.steps() == 10);
  Strings wanted{"train_begin"};
  for (const std::string epoch : {"0", "1"})
    for (const std::string& hook :
         {"epoch_begin " + epoch, std::string("train_batch_begin 0"),
          std::string("train_batch_end 2"), std::string("train_batch_begin 3"),
          std::string("train_batch_end 4"), "epoch_end " + epoch})
      wanted.push_back(hook);
  wanted.push_back("train_end");
  CHECK(record->hooks == wanted);
  // The epoch ends after steps_per_epoch, even within an execution.
  auto few = model();
  options.callbacks = {};
  options.steps_per_epoch = 4;
  few.fit(points() | ls::repeat | ls::batch(2), options);
  CHECK(few.steps() == 8);
}

TEST_CASE("a single process stops within an execution") {
  std::stop_source source;
  auto m = model();
  auto options = quiet();
  options.steps_per_execution = 5;
  options.stop = source.get_token();
  const auto stopping = points() | ls::map([&source](auto& example) {
                          if (example.y[0] == static_cast<float>(ys()[4])) source.request_stop();
                        });
  m.fit(stopping | ls::batch(2), options);
  CHECK(m.steps() == 3);
}

TEST_CASE("hooks are called in Keras' order") {
  auto m = model();
  auto record = std::make_shared<Recorder>();
  auto options = quiet(2);
  options.callbacks = {record};
  m.fit(points() | ls::batch(5), points() | ls::batch(10), options);
  Strings expected{"train_begin"};
  for (const char* epoch : {"0", "1"})
    for (const std::string hook :
         {"epoch_begin *", "train_batch_begin 0", "train_batch_end 0", "train_batch_begin 1",
          "train_batch_end 1", "test_begin", "test_batch_begin 0", "test_batch_end 0", "test_end",
          "epoch_end *"})
      expected.push_back(hook.back() == '*' ? hook.substr(0, hook.size() - 1) + epoch : hook);
  expected.push_back("train_end");
  CHECK(record->hooks == expected);

  record->hooks.clear();
  m.evaluate(points() | ls::batch(6), {.callbacks = {record}});
  CHECK(record->hooks == Strings{"test_begin", "test_batch_begin 0", "test_batch_end 0",
                                 "test_batch_begin 1", "test_batch_end 1", "test_end"});
  record->hooks.clear();
  m.predict(points() | ls::batch(6), {.callbacks = {record}});
  CHECK(record->hooks == Strings{"predict_begin", "predict_batch_begin 0", "predict_batch_end 0",
                                 "predict_batch_begin 1", "predict_batch_end 1", "predict_end"});
}

TEST_CASE("a LambdaCallback gets the logs, and params() describes the run") {
  auto m = model();
  std::vector<double> losses;
  auto options = quiet(3);
  options.callbacks = {ls::LambdaCallback{.on_epoch_end = [&](int, const ls::Logs& logs) {
    losses.push_back(logs["loss"]);
    CHECK(logs.step("loss") == logs["loss"]);  // not that of the last step
  }}};
  const auto history = m.fit(points() | ls::batch(4), options);
  CHECK(losses == history["loss"]);

  struct Params : ls::Callback {
    ls::TrainingParams seen;
    void on_train_begin(const ls::Logs&) override { seen = params(); }
  };
  auto params = std::make_shared<Params>();
  options.callbacks = {params};
  options.initial_epoch = 1;
  m.fit(points() | ls::batch(4), options);
  CHECK(params->seen.epochs == 3);
  CHECK(params->seen.initial_epoch == 1);
  CHECK(params->seen.steps == 3);
  CHECK(params->seen.first_step == 9);
  CHECK(params->seen.batch_size == 4);
  CHECK(params->seen.metrics == Strings{"loss"});
  CHECK_THROWS_AS(params->control(), ls::UsageError);  // the run is over
}

TEST_CASE("losses, gradients and weights are those computed by hand, with a ragged last batch") {
  ByHand hand{.l2 = 0.25, .l1 = 0.5};
  auto m = model<Penalised>();
  auto steps = std::make_shared<StepLosses>();
  auto options = quiet(2);
  options.callbacks = {steps};
  const auto history = m.fit(points() | ls::batch(4), options);
  for (std::size_t epoch = 0; epoch < 2; ++epoch) {
    double sum = 0;  // the epoch's loss is the mean over examples, not over batches
    for (const auto& [first, count] : {std::pair<std::size_t, std::size_t>{0, 4}, {4, 4}, {8, 2}}) {
      const double loss = hand.step(first, count, 0.1);
      CHECK(near(steps->losses[epoch * 3 + first / 4], loss));
      sum += loss * static_cast<double>(count);
    }
    CHECK(near(history["loss"][epoch], sum / 10));
  }
  CHECK(near(m.weights("dense/kernel")[0], hand.w));
  CHECK(near(m.weights("dense/bias")[0], hand.b));
  CHECK(near(m.gradients("dense/kernel")[0], hand.d_w));  // penalties included
  CHECK(near(m.gradients("dense/bias")[0], hand.d_b));

  const auto logs = m.evaluate(points() | ls::batch(3));
  CHECK(near(logs["loss"], hand.squares(0, 10) / 10 + hand.penalty()));
  CHECK(near(m.evaluate(points() | ls::batch(3), {.steps = 2})["loss"],
             hand.squares(0, 6) / 6 + hand.penalty()));
}

TEST_CASE("train_on_batch and test_on_batch are one step of fit and of evaluate") {
  ByHand hand{.l2 = 0.25, .l1 = 0.5};
  auto m = model<Penalised>();
  const double before = m.test_on_batch(xs(), ys())["loss"];
  CHECK(near(before, hand.squares(0, 10) / 10 + hand.penalty()));
  CHECK(m.steps() == 0);
  CHECK(near(m.train_on_batch(xs(), ys())["loss"], hand.step(0, 10, 0.1)));
  CHECK(m.steps() == 1);
  CHECK(near(m.weights("dense/kernel")[0], hand.w));
}

TEST_CASE("predict returns shuffled data in the order of collect, whatever the model's seed") {
  for (const std::uint64_t seed : {1u, 7u}) {
    ls::Model m{Identity{}, ls::Seed{seed}, ls::OneDevice<ls::Reference<float>>{},
                ls::MeanSquaredError{}, ls::SGD{}};
    std::vector<float> x(40);
    std::iota(x.begin(), x.end(), 0.0f);
    const auto data =
        ls::tensors(x, ls::shape(1), x, ls::shape(1)) | ls::shuffle(40) | ls::batch(6);
    const auto predicted = m.predict(data);
    const auto collected = ls::collect(data);
    CHECK(std::equal(collected.targets.begin(), collected.targets.end(),
                     predicted.elements().begin(), predicted.elements().end()));
    CHECK(collected.targets != x);
  }
}

TEST_CASE("predict keeps the order of the data and computes the same forward pass") {
  auto m = model();
  const auto from_data = m.predict(points() | ls::batch(4));
  const auto from_memory = m.predict(xs(), 3);
  REQUIRE(from_data.count() == 10);
  CHECK(from_data.example_shape() == ls::shape(1));
  for (std::size_t i = 0; i < 10; ++i) CHECK(from_data.row(i)[0] == 0.5 * xs()[i] - 0.25);
  CHECK(std::ranges::equal(from_data.elements(), from_memory.elements()));
  CHECK(m.predict(points() | ls::batch(4), {.steps = 2}).count() == 8);
}

TEST_CASE("stop_training ends the batch loop, and the epoch's last hooks run as in Keras") {
  for (const std::size_t at : {0u, 1u}) {
    auto m = model();
    auto record = std::make_shared<Recorder>();
    struct Stop : ls::Callback {
      std::size_t at = 0;
      void on_train_batch_end(std::size_t b, const ls::Logs&) override {
        if (b == at) control().stop_training();
      }
    };
    auto stop = std::make_shared<Stop>();
    stop->at = at;
    auto options = quiet(5);
    options.callbacks = {record, stop};
    const auto history = m.fit(points() | ls::batch(2), points() | ls::batch(10), options);
    CHECK(m.steps() == at + 1);
    CHECK(history.epoch == std::vector<int>{0});
    CHECK(history["val_loss"].size() == 1);
    CHECK(record->hooks.back() == "train_end");
    CHECK(occurrences(record->hooks, "epoch_end 0") == 1);
  }
}

TEST_CASE("stop_training in an epoch hook ends training after that epoch") {
  struct Stop : ls::Callback {
    void on_epoch_end(int epoch, const ls::Logs&) override {
      if (epoch == 1) control().stop_training();
    }
  };
  auto m = model();
  auto options = quiet(9);
  options.callbacks = {std::make_shared<Stop>()};
  CHECK(m.fit(points() | ls::batch(5), options).epoch == std::vector<int>{0, 1});
  CHECK(m.fit(points() | ls::batch(5), quiet(1)).epoch.size() == 1);  // the next run is not stopped
}

TEST_CASE("a stop token ends fit after the current step, and train_end is still called") {
  std::stop_source source;
  auto record = std::make_shared<Recorder>();
  auto options = quiet(3);
  options.stop = source.get_token();
  options.callbacks = {
      record, ls::LambdaCallback{.on_train_batch_end = [&](std::size_t b, const ls::Logs&) {
        if (b == 2) source.request_stop();
      }}};
  auto m = model();
  const auto history = m.fit(points() | ls::batch(2), options);
  CHECK(m.steps() == 3);
  CHECK(history.epoch.empty());
  CHECK(record->hooks.back() == "train_end");
}

TEST_CASE("initial_epoch continues where an earlier fit stopped, including the order of data") {
  const auto data = classes() | ls::shuffle(40) | ls::batch(7);
  auto whole = classifier(), parts = classifier();
  whole.fit(data, quiet(3));
  parts.fit(data, quiet(2));
  auto rest = quiet(3);
  rest.initial_epoch = 2;
  const auto history = parts.fit(data, rest);
  CHECK(history.epoch == std::vector<int>{2});
  CHECK(parts.weights_sha256() == whole.weights_sha256());
}

TEST_CASE("a second fit continues with the next pass, and a new model can resume at any pass") {
  struct Dropped
      : ls::Sequential<ls::Input<2>, ls::Dense<16>, ls::Dropout<ls::rate(0.5f)>, ls::Dense<3>> {};
  const auto data = classes() | ls::shuffle(40) | ls::batch(7);
  const auto make = [] {  // learning rate 0: the loss depends on the pass only
    return ls::Model{Dropped{}, Float{}, ls::SparseCategoricalCrossentropy{.from_logits = true},
                     ls::SGD{.learning_rate = 0}};
  };
  auto steps = std::make_shared<StepLosses>();
  const auto losses = [&](auto& m, int epochs, int first) {
    steps->losses.clear();
    auto options = quiet(epochs);
    options.initial_epoch = first;
    options.callbacks = {steps};
    m.fit(data, options);
    return steps->losses;
  };
  auto whole = make(), parts = make();
  const auto expected = losses(whole, 3, 0);
  REQUIRE(expected.size() == 18);
  CHECK(whole.passes() == 3);
  std::vector<double> found;
  for (int i = 0; i < 3; ++i)
    for (const double loss : losses(parts, 1, 0)) found.push_back(loss);
  CHECK(found == expected);
  // A new model that begins at epoch k reads pass k; a trained one never goes back.
  for (const int k : {1, 2}) {
    auto fresh = make();
    CHECK(losses(fresh, 3, k) == std::vector<double>(expected.begin() + 6 * k, expected.end()));
    CHECK(fresh.passes() == 3);
  }
  const auto after = losses(parts, 2, 1);
  CHECK(parts.passes() == 4);
  auto fresh = make();
  CHECK(losses(fresh, 4, 3) == after);
  // With steps_per_epoch a fit is one pass; the next fit uses a different order.
  auto options = quiet(1);
  options.steps_per_epoch = 3;
  options.callbacks = {steps};
  auto a = make(), b = make();
  steps->losses.clear();
  for (int i = 0; i < 2; ++i) a.fit(data, options);
  CHECK(a.passes() == 2);
  const std::vector<double> twice = steps->losses;
  CHECK(std::vector(twice.begin(), twice.begin() + 3) !=
        std::vector(twice.begin() + 3, twice.end()));
  // A fit without an epoch does not count as a pass.
  auto none = quiet(2);
  none.initial_epoch = 5;
  CHECK(b.fit(data, none).epoch.empty());
  CHECK(b.passes() == 0);
  // Each train_on_batch counts as a pass.
  const std::vector<float> x{1, 2, 3, 4};
  const std::vector<std::int32_t> y{0, 1};
  b.fit(data, options);
  const double third = b.train_on_batch(x, y)["loss"];
  CHECK(b.passes() == 2);
  CHECK(b.train_on_batch(x, y)["loss"] != third);
}

TEST_CASE("initial_epoch with steps_per_epoch resumes the data of a trained model") {
  const auto data = classes(10) | ls::shuffle(10) | ls::repeat() | ls::batch(4);
  const auto train = [&](auto& m, int first, int last) {
    auto options = quiet(last);
    options.initial_epoch = first;
    options.steps_per_epoch = 2;
    m.fit(data, options);
  };
  auto whole = classifier(), parts = classifier();
  train(whole, 0, 1);
  train(whole, 0, 3);
  train(parts, 0, 1);
  train(parts, 0, 2);
  train(parts, 2, 3);
  CHECK(parts.weights_sha256() == whole.weights_sha256());
  CHECK(parts.passes() == 2);
}

TEST_CASE("a validation that is stopped midway does not appear in the logs") {
  std::stop_source source;
  auto options = quiet(3);
  options.stop = source.get_token();
  std::size_t batches = 0, at = 0;
  options.callbacks = {ls::LambdaCallback{.on_test_batch_end = [&](std::size_t, const ls::Logs&) {
    if (++batches == at) source.request_stop();
  }}};
  auto m = model();
  at = 2;
  const auto history = m.fit(points() | ls::batch(5), points() | ls::batch(3), options);
  CHECK(batches == 2);
  CHECK(history.names() == Strings{"loss"});
  CHECK(history.epoch == std::vector<int>{0});
}

TEST_CASE("a learning rate finder can restore the model") {
  const auto data = points() | ls::batch(2);
  const auto make = [](auto optimizer) {
    return ls::Model{Net{}, ls::Seed{3}, Double{}, ls::MeanSquaredError{}, optimizer};
  };
  const auto check = [&](auto optimizer) {
    auto expected = make(optimizer), found = make(optimizer);
    expected.fit(data, quiet(3));
    struct Finder : ls::Callback {
      std::vector<std::byte> start;
      void on_train_begin(const ls::Logs&) override {
        start = control().weights();
        control().set_learning_rate(1e-4);
      }
      void on_train_batch_end(std::size_t, const ls::Logs&) override {
        control().set_learning_rate(2 * control().learning_rate());
      }
      void on_train_end(const ls::Logs&) override { control().set_weights(start); }
    };
    auto options = quiet(2);
    options.callbacks = {std::make_shared<Finder>()};
    found.fit(data, options);
    CHECK(found.steps() == 10);
    CHECK(near(found.learning_rate(), 1e-4 * 1024));
    found.reset_optimizer();
    CHECK(found.steps() == 0);
    CHECK(found.updates() == 0);
    CHECK(near(found.learning_rate(), 1e-4 * 1024));  // a reset keeps the rate
    found.clear_learning_rate();
    CHECK(found.learning_rate() == optimizer.learning_rate(0));
    found.fit(data, quiet(3));
    CHECK(found.weights_sha256() == expected.weights_sha256());
    CHECK(found.learning_rate() == expected.learning_rate());
  };
  const ls::Schedule schedule(
      [](std::uint64_t step) { return 0.1 / static_cast<double>(step + 1); });
  check(ls::SGD{.learning_rate = schedule, .momentum = 0.9});
  check(ls::Adam{.learning_rate = schedule});
  check(ls::Adagrad{.learning_rate = schedule});  // whose slots do not start at 0
  check(
      ls::Adam{.learning_rate = 0.1, .with = {.use_ema = true, .gradient_accumulation_steps = 2}});
}

TEST_CASE("averages count only the updates since a callback reset the optimizer") {
  const auto data = points() | ls::batch(2);
  ls::Model m{Net{}, ls::Seed{3}, Double{}, ls::MeanSquaredError{},
              ls::SGD{.learning_rate = 0.05, .with = {.use_ema = true, .ema_momentum = 0.5}}};
  m.fit(data, quiet(2));
  auto options = quiet(2);
  double average = 0;
  std::uint64_t updates = 0;
  options.callbacks = {ls::LambdaCallback{.on_epoch_begin =
                                              [&](int epoch, const ls::Logs&) {
                                                if (epoch == 1) m.reset_optimizer();
                                              },
                                          .on_train_batch_end =
                                              [&](std::size_t, const ls::Logs&) {
                                                const double w = m.weights("dense/bias")[0];
                                                updates = m.updates();
                                                average =
                                                    updates == 1 ? w : 0.5 * average + 0.5 * w;
                                              }}};
  m.fit(data, options);
  CHECK(updates == 5);
  CHECK(near(m.weights("dense/bias")[0], average));
}

TEST_CASE("a nested fit in a callback does not cause a pass to repeat") {
  const auto data = points() | ls::batch(2);
  auto m = model();
  auto options = quiet(2);
  options.callbacks = {ls::LambdaCallback{.on_epoch_end = [&](int epoch, const ls::Logs&) {
    if (epoch == 0) m.fit(data, quiet(4));
  }}};
  m.fit(data, options);
  CHECK(m.passes() == 5);
}

TEST_CASE("with steps_per_epoch each epoch continues where the data stopped") {
  const auto data = classes(10) | ls::shuffle(10) | ls::repeat() | ls::batch(4);
  auto short_epochs = std::make_shared<StepLosses>(), one_epoch = std::make_shared<StepLosses>();
  auto a = classifier(), b = classifier(), c = classifier();
  auto options = quiet(3);
  options.steps_per_epoch = 2;
  options.callbacks = {short_epochs};
  a.fit(data, options);
  options.epochs = 1;
  options.steps_per_epoch = 6;
  options.callbacks = {one_epoch};
  b.fit(data, options);
  CHECK(short_epochs->losses.size() == 6);
  CHECK(short_epochs->losses == one_epoch->losses);
  // Also if a later call consumes the rest.
  options.callbacks.clear();
  options.steps_per_epoch = 2;
  c.fit(data, options);
  options.initial_epoch = 1;
  options.epochs = 3;
  c.fit(data, options);
  CHECK(c.weights_sha256() == a.weights_sha256());
}

TEST_CASE("data that run out end training with a warning that names the step") {
  std::string message;
  const auto before = ls::set_log([&](ls::LogLevel, std::string_view text) { message = text; });
  auto options = quiet(5);
  options.steps_per_epoch = 3;
  auto m = model();
  const auto history = m.fit(points() | ls::batch(2), options);  // five batches
  CHECK(history.epoch == std::vector<int>{0, 1});
  CHECK(m.steps() == 5);
  CHECK(message.find("the data ran out in epoch 2 after step 2") != std::string::npos);
  CHECK(message.find("ls::repeat") != std::string::npos);
  message.clear();
  options.epochs = 1;
  options.steps_per_epoch = 5;
  m.fit(points() | ls::batch(2), options);
  CHECK(message.empty());
  ls::set_log(before);
}

TEST_CASE("a callback controls the learning rate from the next step on") {
  ByHand hand;
  auto m = model();
  auto options = quiet(2);
  options.callbacks = {ls::LambdaCallback{.on_epoch_begin = [&](int epoch, const ls::Logs&) {
    if (epoch == 1) m.set_learning_rate(0.01);
  }}};
  m.fit(points() | ls::batch(10), options);
  hand.step(0, 10, 0.1);
  hand.step(0, 10, 0.01);
  CHECK(near(m.weights("dense/kernel")[0], hand.w));
  CHECK(m.learning_rate() == 0.01);

  struct Halve : ls::Callback {
    void on_train_batch_end(std::size_t, const ls::Logs&) override {
      control().set_learning_rate(control().learning_rate() / 2);
    }
  };
  options = quiet(1);
  options.callbacks = {std::make_shared<Halve>()};
  m.fit(points() | ls::batch(5), options);
  hand.step(0, 5, 0.01);
  hand.step(5, 5, 0.005);
  CHECK(near(m.weights("dense/kernel")[0], hand.w));
}

TEST_CASE("a schedule gets the step number, counted from 0 over the model's life") {
  ByHand hand;
  auto m = model(
      {.learning_rate = [](std::uint64_t step) { return 0.1 / static_cast<double>(step + 1); }});
  m.fit(points() | ls::batch(5), quiet(1));
  m.fit(points() | ls::batch(10), quiet(1));
  hand.step(0, 5, 0.1);
  hand.step(5, 5, 0.1 / 2);
  hand.step(0, 10, 0.1 / 3);
  CHECK(near(m.weights("dense/kernel")[0], hand.w));
  CHECK(near(m.learning_rate(), 0.1 / 4));
}

TEST_CASE("training is a function of the seed, and prefetch does not change the results") {
  const auto data = classes() | ls::shuffle(16) | ls::batch(7);
  const auto digest = [&](std::uint64_t seed, auto pipeline) {
    auto m = classifier(seed);
    m.fit(pipeline, quiet(3));
    return m.weights_sha256();
  };
  CHECK(digest(1, data) == digest(1, data));
  CHECK(digest(1, data) == digest(1, data | ls::prefetch(0)));
  CHECK(digest(1, data) == digest(1, data | ls::prefetch(3)));
  CHECK(digest(1, data) != digest(2, data));
}

TEST_CASE("dropout draws a new mask in each step, and none outside of training") {
  struct Dropped
      : ls::Sequential<ls::Input<2>, ls::Dense<64>, ls::Dropout<ls::rate(0.5f)>, ls::Dense<3>> {};
  struct Bare : ls::Sequential<ls::Input<2>, ls::Dense<64>, ls::Dense<3>> {};
  const auto make = [](auto net) {
    return ls::Model{net, Float{}, ls::SparseCategoricalCrossentropy{.from_logits = true},
                     ls::SGD{.learning_rate = 0}};
  };
  const std::vector<float> x{1, 2, 3, 4};
  const std::vector<std::int32_t> y{0, 1};
  auto a = make(Dropped{}), b = make(Dropped{});
  auto bare = make(Bare{});
  const double first = a.train_on_batch(x, y)["loss"], second = a.train_on_batch(x, y)["loss"];
  CHECK(first != second);
  CHECK(b.train_on_batch(x, y)["loss"] == first);
  CHECK(b.train_on_batch(x, y)["loss"] == second);
  CHECK(a.test_on_batch(x, y)["loss"] == bare.test_on_batch(x, y)["loss"]);
}
