/// \file
/// Measures the cost of scalars for TensorBoard after each step: the tutorials' CNN inside `fit`,
/// with the callback TensorBoard{.update_freq = "batch"} and without it, in turn. The bound is 2 %
/// of the step.
///
/// The callback is also measured alone, as the time from its beginning to its end: the difference
/// of two steps is near the noise of the machine.
///
/// Usage: tensorboard [--threads N] [--rounds N] [--steps N] [--warmup N] [--batch N] [--logs DIR]
#include <fmt/format.h>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include <lockstep/tensorboard.hpp>

#include "seed_step.hpp"

namespace {

using namespace measure;

/// Calls the hooks of a batch of another callback, and records their time.
class TimedHooks : public ls::Callback {
 public:
  explicit TimedHooks(std::shared_ptr<ls::Callback> inner) : inner_(std::move(inner)) {}

  void on_train_begin(const ls::Logs& logs) override {
    before_ = inner_->set_control(&control());
    inner_->on_train_begin(logs);
  }
  void on_epoch_begin(int epoch, const ls::Logs& logs) override {
    inner_->on_epoch_begin(epoch, logs);
  }
  void on_train_batch_begin(std::size_t batch, const ls::Logs& logs) override {
    const Clock::time_point begin = Clock::now();
    inner_->on_train_batch_begin(batch, logs);
    begin_ = Clock::now() - begin;
  }
  void on_train_batch_end(std::size_t batch, const ls::Logs& logs) override {
    const Clock::time_point begin = Clock::now();
    inner_->on_train_batch_end(batch, logs);
    times.add(micros(begin_ + Clock::now() - begin));
  }
  void on_epoch_end(int epoch, const ls::Logs& logs) override { inner_->on_epoch_end(epoch, logs); }
  void on_train_end(const ls::Logs& logs) override {
    inner_->on_train_end(logs);
    inner_->set_control(before_);
  }

  Samples times;

 private:
  std::shared_ptr<ls::Callback> inner_;
  ls::TrainingControl* before_ = nullptr;
  Clock::duration begin_{};
};

}  // namespace

int main(int argc, char** argv) {
  Turns turns;
  int threads = 1;
  std::string logs =
      (std::filesystem::temp_directory_path() / "lockstep_benchmark_tensorboard").string();
  CLI::App app("Measures the cost of scalars for TensorBoard after each step.", "tensorboard");
  turns.add_to(app);
  app.add_option("--threads", threads)->check(CLI::Range(1, 1024));
  app.add_option("--logs", logs, "folder of the event files; it is removed");
  CLI11_PARSE(app, argc, argv);

  Timed<OneDevice> strategy{{.on = {.threads = threads}}};
  auto model = model_on(strategy);
  const auto batches = images() | ls::batch(turns.batch);
  const auto hooks = std::make_shared<TimedHooks>(
      ls::TensorBoard{.log_dir = logs, .write_steps_per_second = true, .update_freq = "batch"});
  const Neighbours neighbours;
  fmt::print("{}\n", machine());

  Samples plain, logged;
  const std::size_t count = turns.warmup + turns.steps;
  const auto turn = [&](Samples& to, const ls::Callbacks& callbacks) {
    strategy.recorder->steps.clear();
    model.fit(batches, {.epochs = 1,
                        .steps_per_epoch = count,
                        .callbacks = callbacks,
                        .progress = ls::ProgressStyle::none});
    // A step that is recorded ends before its callbacks, so they count in the next one.
    for (std::size_t i = turns.warmup; i < count; ++i) to.add(strategy.recorder->steps[i].us);
  };
  for (std::size_t round = 0; round < turns.rounds; ++round) {
    turn(plain, {});
    turn(logged, {hooks});
  }
  std::filesystem::remove_all(logs);

  fmt::print("{:28} {:>10} {:>10}\n", "us a step", "median", "min");
  const auto row = [](const char* name, const Samples& s) {
    fmt::print("{:28} {:10.1f} {:10.1f}\n", name, s.median(), s.min());
  };
  row("without TensorBoard", plain);
  row("scalars after each step", logged);
  row("the callback alone", hooks->times);
  const double ratio = logged.median() / plain.median();
  const double share = hooks->times.median() / plain.median();
  fmt::print("with / without: {:.4f} of medians, {:.4f} of minima\n", ratio,
             logged.min() / plain.min());
  fmt::print("the callback is {:.2f} % of a step; at most 2 %: {}\n", 100 * share,
             verdict(share <= 0.02));
  fmt::print("other processes used {:.0f} % of the machine\n", neighbours.percent());
}
