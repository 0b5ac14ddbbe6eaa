// The progress bar compared with recorded output of Keras' Progbar (record_progress.py), and the
// callback.
#include "lockstep/training/report/progress.hpp"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>

#include "golden/recorded.hpp"
#include "lockstep/training/export/architecture.hpp"

namespace ls = lockstep;
using ls::ProgressStyle;

namespace {
struct Loop : ls::TrainingControl {
  void stop_training() override {}
  bool stop_requested() const override { return false; }
  std::uint64_t steps() const override { return 0; }
  double learning_rate() const override { return 0; }
  void set_learning_rate(double) override {}
  void log(std::string_view, double) override {}
  std::vector<std::byte> weights() const override { return {}; }
  void set_weights(std::span<const std::byte>) override {}
  void save_weights(const std::string&) override {}
  void write_checkpoint(const std::string&, std::size_t) override {}
  void swap_averages(bool) override {}
  bool is_finite() const override { return true; }
  std::string not_finite() const override { return {}; }
  std::vector<ls::NamedTensor> tensors() const override { return {}; }
  const ls::TrainingParams& params() const override { return numbers; }
  ls::Architecture architecture() const override { return {}; }
  ls::TrainingParams numbers;
};

/// A run with a fake clock: each batch takes 0.1 s.
struct Run {
  explicit Run(ProgressStyle style, std::optional<std::uint64_t> steps, int epochs = 1)
      : progress(
            style, [this](std::string_view part) { text += part; }, false, [this] { return now; }) {
    loop.numbers.epochs = epochs;
    loop.numbers.steps = steps;
    progress.set_control(&loop);
  }
  void batch(std::size_t number) {
    now += 0.1;
    progress.on_train_batch_begin(number, {});
    logs.set("loss", 2, 4);
    logs.set("accuracy", 0.5, 0.25);
    progress.on_train_batch_end(number, logs);
  }
  void epochs(int from, int to, std::size_t batches) {
    progress.on_train_begin({});
    for (int epoch = from; epoch < to; ++epoch) {
      progress.on_epoch_begin(epoch, {});
      for (std::size_t b = 0; b < batches; ++b) batch(b);
      progress.on_epoch_end(epoch, logs);
    }
    progress.on_train_end(logs);
  }
  std::string text;
  double now = 50;
  Loop loop;
  ls::Logs logs;
  ls::Progress progress;
};

/// Sets or unsets an environment variable for one scope.
struct Environment {
  Environment(const char* variable, const char* value) : name(variable) {
    if (const char* before = std::getenv(name)) old = before;
    value ? ::setenv(name, value, 1) : ::unsetenv(name);
  }
  ~Environment() { old ? ::setenv(name, old->c_str(), 1) : ::unsetenv(name); }
  const char* name;
  std::optional<std::string> old;
};
}  // namespace

TEST_CASE("the bar is byte for byte what Keras writes") {
  int texts = 0;
  for (const auto document = recorded::read("progress");
       const recorded::Json& scenario : document.GetArray()) {
    const std::string style = recorded::text(scenario["style"]);
    const auto target = scenario["target"].GetUint64();
    const auto updates = scenario["updates"].GetArray();
    INFO(recorded::text(scenario["name"]) << ", style " << style);
    ls::ProgressBar bar(style == "keras"     ? ProgressStyle::keras
                        : style == "classic" ? ProgressStyle::classic
                                             : ProgressStyle::plain,
                        target ? std::optional(target) : std::nullopt,
                        scenario["terminal"].GetBool(), 1000);
    for (const recorded::Json& update : updates) {
      const auto step = update["step"].GetUint64();
      INFO("step " << step);
      ls::Logs logs;
      for (const auto& [name, value] : recorded::logs(update["logs"])) logs.set(name, value);
      const double time = update["time"].GetDouble();
      const bool last = &update == &updates[updates.Size() - 1];
      const std::string text = last ? bar.finish(step, logs, time) : bar.update(step, logs, time);
      CHECK(text == recorded::text(update["text"]));
      texts += !text.empty();
    }
  }
  CHECK(texts > 100);
}

TEST_CASE("the plain style keeps the decimals of a negative value") {
  ls::ProgressBar bar(ProgressStyle::plain, 2, false, 0);
  ls::Logs logs;
  logs.set("loss", -0.5);
  CHECK(bar.finish(2, logs, 2) == "2/2 - 2s - 1s/step - loss: -0.5000\n");
}

TEST_CASE("the plain style writes a header and one line per epoch") {
  Run run(ProgressStyle::plain, 3, 2);
  run.epochs(0, 2, 3);
  CHECK(run.text ==
        "Epoch 1/2\n3/3 - 0s - 100ms/step - accuracy: 0.5000 - loss: 2.0000\n"
        "Epoch 2/2\n3/3 - 0s - 100ms/step - accuracy: 0.5000 - loss: 2.0000\n");
}

TEST_CASE("a run of one epoch has no header") {
  Run run(ProgressStyle::plain, std::nullopt);
  run.epochs(0, 1, 2);
  CHECK(run.text == "2/2 - 0s - 100ms/step - accuracy: 0.5000 - loss: 2.0000\n");
}

TEST_CASE("the classic style on a pipe redraws after each batch and at the end of the epoch") {
  Run run(ProgressStyle::classic, 2, 3);
  run.epochs(2, 3, 2);
  const std::string values = " - loss: 2.0000 - accuracy: 0.5000";
  CHECK(run.text ==
        "Epoch 3/3\n"
        "\n1/2 [==============>...............] - ETA: 0s" +
            values + "\n2/2 [==============================] - ETA: 0s" + values +
            "\n2/2 [==============================] - 0s 100ms/step" + values + "\n");
}

TEST_CASE("an epoch that is stopped early shows the number of steps done") {
  Run run(ProgressStyle::plain, 7);
  run.epochs(0, 1, 3);
  CHECK(run.text == "3/7 - 0s - 100ms/step - accuracy: 0.5000 - loss: 2.0000\n");
}

TEST_CASE("an unknown target is known from the second epoch on") {
  Run run(ProgressStyle::keras, std::nullopt, 2);
  run.epochs(0, 2, 2);
  const auto second = run.text.find("Epoch 2/2");
  CHECK(run.text.substr(0, second).find("      1/Unknown") != std::string::npos);
  CHECK(run.text.find("Unknown", second) == std::string::npos);
  CHECK(run.text.find("1/2", second) != std::string::npos);
}

TEST_CASE("an unfinished line is ended even if an exception ends the run") {
  SECTION("stopped") {
    Run run(ProgressStyle::keras, 9);
    run.progress.on_train_begin({});
    run.progress.on_epoch_begin(0, {});
    run.batch(0);
    run.progress.on_train_end({});
    CHECK(run.text.back() == '\n');
  }
  SECTION("thrown") {
    std::string text;
    Loop loop;
    {
      ls::Progress progress(ProgressStyle::keras, [&](std::string_view part) { text += part; });
      progress.set_control(&loop);
      progress.on_train_begin({});
      progress.on_epoch_begin(0, {});
      progress.on_train_batch_end(0, {});
      CHECK(text.back() != '\n');
    }
    CHECK(text.back() == '\n');
  }
}

TEST_CASE("evaluate and predict have a bar, and validation inside fit has none") {
  Run run(ProgressStyle::plain, 2);
  run.logs.set("loss", 1.5);
  const auto evaluate = [&] {
    run.progress.on_test_begin({});
    for (std::size_t b = 0; b < 2; ++b) {
      run.now += 1;
      run.progress.on_test_batch_end(b, run.logs);
    }
    run.progress.on_test_end(run.logs);
  };
  evaluate();
  CHECK(run.text == "2/2 - 2s - 1s/step - loss: 1.5000\n");
  run.text.clear();
  run.progress.on_predict_begin({});
  run.now += 4;
  run.progress.on_predict_batch_end(1, run.logs);
  run.progress.on_predict_end(run.logs);
  CHECK(run.text == "2/2 - 4s - 2s/step\n");
  run.text.clear();
  run.progress.on_train_begin({});
  evaluate();
  CHECK(run.text.empty());
  run.progress.on_train_end({});
  evaluate();
  CHECK_FALSE(run.text.empty());
}

TEST_CASE("the json style writes one object per line, with the values of the step") {
  Run run(ProgressStyle::json, 2, 3);
  run.loop.numbers.first_step = 17;
  run.loop.numbers.initial_epoch = 1;
  run.loop.numbers.replicas = 4;
  run.progress.on_train_begin({});
  run.progress.on_epoch_begin(1, {});
  run.batch(0);
  run.batch(1);
  run.logs.set("val_\"x\"", std::numeric_limits<double>::quiet_NaN());
  run.logs.set("loss", 0.1);
  run.progress.on_epoch_end(1, run.logs);
  run.progress.on_train_end(run.logs);
  CHECK(run.text ==
        R"({"event":"train_begin","rank":0,"replicas":4,"steps":4}
{"event":"step","step":17,"epoch":1,"loss":4,"accuracy":0.25}
{"event":"step","step":18,"epoch":1,"loss":4,"accuracy":0.25}
{"event":"epoch_end","epoch":1,"loss":0.1,"accuracy":0.5,"val_\"x\"":null}
{"event":"train_end"}
)");
}

TEST_CASE("hooks that an elastic job calls again add no line to json") {
  Run run(ProgressStyle::json, 2, 2);
  run.loop.numbers.rank = 1;  // it becomes the chief
  run.progress.on_train_begin({});
  run.progress.on_epoch_begin(0, {});
  run.batch(0);
  run.loop.numbers.rank = 0;
  run.text.clear();
  const auto change = [&](std::uint64_t step) {
    ls::WorkersChange now;
    now.batch = static_cast<std::size_t>(step);
    now.step = step;
    run.progress.on_workers_change(now);
  };
  const auto steps = [&] {
    std::size_t count = 0;
    for (auto at = run.text.find("\"step\""); at != run.text.npos;
         at = run.text.find("\"step\"", at + 1))
      ++count;
    return count;
  };
  change(1);
  run.progress.on_train_batch_end(0, run.logs);  // again
  CHECK(steps() == 0);
  run.batch(1);
  const std::size_t once = steps();
  CHECK(once > 0);
  run.progress.on_epoch_end(0, run.logs);
  const std::string text = run.text;
  change(2);
  run.progress.on_train_batch_end(1, run.logs);  // again
  run.progress.on_epoch_end(0, run.logs);
  CHECK(run.text == text);
}

TEST_CASE("a rank other than the chief writes only json's train_begin and train_end") {
  for (const auto style : {ProgressStyle::keras, ProgressStyle::classic, ProgressStyle::plain}) {
    Run run(style, 2, 2);
    run.loop.numbers.rank = 3;
    run.epochs(0, 2, 2);
    CHECK(run.text.empty());
  }
  Run run(ProgressStyle::json, std::nullopt, 2);
  run.loop.numbers.rank = 3;
  run.loop.numbers.replicas = 4;
  run.epochs(0, 2, 2);
  CHECK(run.text ==
        "{\"event\":\"train_begin\",\"rank\":3,\"replicas\":4}\n{\"event\":\"train_end\"}\n");
}

TEST_CASE("the style none writes nothing") {
  Run run(ProgressStyle::none, 2, 2);
  run.epochs(0, 2, 2);
  CHECK(run.text.empty());
}

TEST_CASE("the automatic style is keras on a terminal and plain elsewhere and under CI") {
  Environment ci("CI", nullptr), no_color("NO_COLOR", nullptr);
  CHECK(ls::resolve(ProgressStyle::automatic, true) == ProgressStyle::keras);
  CHECK(ls::resolve(ProgressStyle::automatic, false) == ProgressStyle::plain);
  CHECK(ls::resolve(ProgressStyle::json, false) == ProgressStyle::json);
  {
    Environment set("CI", "true");
    CHECK(ls::resolve(ProgressStyle::automatic, true) == ProgressStyle::plain);
    CHECK(ls::resolve(ProgressStyle::keras, true) == ProgressStyle::keras);
  }
  {
    Environment set("NO_COLOR", "1");
    CHECK(ls::resolve(ProgressStyle::automatic, true) == ProgressStyle::keras);
  }
}

TEST_CASE("NO_COLOR removes the colours of the bar and nothing else") {
  const auto drawn = [](const char* value) {
    Environment no_color("NO_COLOR", value);
    Run run(ProgressStyle::keras, 4);
    run.epochs(0, 1, 3);
    return run.text;
  };
  const std::string coloured = drawn(nullptr), bare = drawn("1");
  CHECK(drawn("") == coloured);  // no-color.org: an empty value does not count
  CHECK(bare.find('\x1b') == std::string::npos);
  std::string expected = coloured;
  for (const std::string_view code : {"\x1b[1m", "\x1b[32m", "\x1b[0m"})
    for (std::size_t at = 0; (at = expected.find(code)) != expected.npos;)
      expected.erase(at, code.size());
  for (std::size_t at = 0; (at = expected.find("\x1b[37m")) != expected.npos;) {
    expected.erase(at, 5);
    for (; expected.compare(at, 3, "━") == 0; at += 3) expected.replace(at, 3, "─");
  }
  CHECK(bare == expected);
  CHECK_THAT(bare, Catch::Matchers::ContainsSubstring("1/4 ━━━━━───────────────"));
}

TEST_CASE("a progress style has a name") {
  CHECK(ls::progress_style("classic") == ProgressStyle::classic);
  CHECK(ls::progress_style("json") == ProgressStyle::json);
  CHECK_FALSE(ls::progress_style("fancy").has_value());
}

TEST_CASE("progress writes to a stream and flushes it") {
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  Loop loop;
  loop.numbers.steps = 1;
  ls::Progress progress(ProgressStyle::automatic, file);
  CHECK(progress.style() == ProgressStyle::plain);
  progress.set_control(&loop);
  progress.on_epoch_begin(0, {});
  progress.on_train_batch_end(0, {});
  progress.on_epoch_end(0, {});
  char text[5] = {};
  CHECK(::pread(::fileno(file), text, 4, 0) == 4);  // reads the file, not the stream's buffer
  CHECK(std::string(text) == "1/1 ");
  std::fclose(file);
}
