/// \file
/// Reports a run while it lasts. Invariants: only the chief writes, but for train_begin and
/// train_end of the json style, which every rank writes; each text is flushed; a line that was
/// begun is ended, also when the run ends by an exception.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/durations.hpp"
#include "lockstep/training/report/progress_bar.hpp"

namespace lockstep {

/// Keras' ProgbarLogger with a choice of styles.
///
/// An epoch that was stopped early keeps the count of the steps that were done. In the json style
/// `step` counts over the run from TrainingParams::first_step, its values are those of the step
/// alone, and those of `epoch_end` are the epoch's.
/// \code
///   lockstep::Progress to_stdout(lockstep::ProgressStyle::automatic);
///   lockstep::Progress to_text(lockstep::ProgressStyle::plain,
///                              [&](std::string_view part) { text += part; });
/// \endcode
class Progress : public Callback {
 public:
  using Sink = std::function<void(std::string_view)>;
  using Clock = std::function<double()>;  ///< seconds from any origin

  explicit Progress(ProgressStyle style = ProgressStyle::automatic, std::FILE* stream = stdout)
      : Progress(
            style,
            [stream](std::string_view text) {
              std::fwrite(text.data(), 1, text.size(), stream);
              std::fflush(stream);
            },
            ::isatty(::fileno(stream)) == 1) {}
  Progress(ProgressStyle style, Sink sink, bool is_terminal = false, Clock clock = &seconds)
      : style_(resolve(style, is_terminal)),
        is_terminal_(is_terminal),
        sink_(std::move(sink)),
        clock_(std::move(clock)) {}
  [[gnu::cold, gnu::noinline]] ~Progress() override {
    try {
      end_line();
    } catch (...) {
      // A sink that fails while an error unwinds must not hide that error.
    }
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  ProgressStyle style() const { return style_; }

  [[gnu::cold]] void on_train_begin(const Logs&) override {
    in_fit_ = true;
    target_ = params().steps;
    step_ = params().first_step;
    if (style_ != ProgressStyle::json) return;
    const auto& p = params();
    std::string line =
        text({R"({"event":"train_begin","rank":)", p.rank, R"(,"replicas":)", p.replicas});
    if (p.steps && p.epochs >= p.initial_epoch)
      line +=
          text({R"(,"steps":)", *p.steps * static_cast<std::uint64_t>(p.epochs - p.initial_epoch)});
    say_json(line);
  }
  [[gnu::cold]] void on_train_end(const Logs&) override {
    in_fit_ = false;
    end_line();
    if (style_ == ProgressStyle::json) sink_("{\"event\":\"train_end\"}\n");
  }
  [[gnu::cold]] void on_epoch_begin(int epoch, const Logs&) override {
    epoch_ = epoch;
    if (!has_bar()) return;
    begin_bar();
    if (params().epochs > 1) sink_(text({"Epoch ", epoch + 1, "/", params().epochs, "\n"}));
  }
  [[gnu::cold]] void on_epoch_end(int epoch, const Logs& logs) override {
    if (has_bar()) end_bar(logs);
    if (!is_json_chief()) return;
    std::string line = text({R"({"event":"epoch_end","epoch":)", epoch});
    for (const auto& [name, value] : logs) add_json(line, name, value);
    say_json(line);
  }
  void on_train_batch_begin(std::size_t batch, const Logs&) override { first_ = batch; }
  void on_train_batch_end(std::size_t batch, const Logs& logs) override {
    step_ += batch - first_ + 1;
    const std::uint64_t step = step_ - 1;
    if (has_bar()) move_bar(batch, logs);
    if (!is_json_chief()) return;
    std::string line = text({R"({"event":"step","step":)", step, R"(,"epoch":)", epoch_});
    for (const auto& entry : logs) add_json(line, entry.first, logs.step(entry.first));
    say_json(line);
  }

  [[gnu::cold]] void on_test_begin(const Logs&) override { begin_alone(); }
  void on_test_batch_end(std::size_t batch, const Logs& logs) override {
    if (!in_fit_ && has_bar()) move_bar(batch, logs);
  }
  [[gnu::cold]] void on_test_end(const Logs& logs) override {
    if (!in_fit_ && has_bar()) end_bar(logs);
  }
  [[gnu::cold]] void on_predict_begin(const Logs&) override { begin_alone(); }
  void on_predict_batch_end(std::size_t batch, const Logs&) override {
    if (!in_fit_ && has_bar()) move_bar(batch, nothing_);
  }
  [[gnu::cold]] void on_predict_end(const Logs&) override {
    if (!in_fit_ && has_bar()) end_bar(nothing_);
  }

 private:
  static double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  [[gnu::cold]] static void add_json(std::string& line, std::string_view name, double value) {
    line += text({",", detail::json_string(name), ":", detail::json_number(value)});
  }
  void say_json(std::string& line) { sink_(line += "}\n"); }
  bool is_json_chief() const { return style_ == ProgressStyle::json && params().rank == 0; }
  bool has_bar() const {
    return style_ != ProgressStyle::json && style_ != ProgressStyle::none && params().rank == 0;
  }

  [[gnu::noinline]] void begin_alone() {
    if (in_fit_ || !has_bar()) return;
    target_ = params().steps;
    begin_bar();
  }
  [[gnu::noinline]] void begin_bar() {
    seen_ = 0;
    bar_.emplace(style_, target_, is_terminal_, clock_(), has_colour_);
  }
  [[gnu::noinline]] void move_bar(std::size_t batch, const Logs& logs) {
    if (!bar_) begin_bar();
    seen_ = std::uint64_t{batch} + 1;
    say(bar_->update(seen_, logs, clock_()));
  }
  [[gnu::noinline]] void end_bar(const Logs& logs) {
    if (!bar_) begin_bar();
    if (!target_) target_ = seen_;
    say(bar_->finish(seen_, logs, clock_()));
  }
  void say(const std::string& drawn) {
    if (!drawn.empty()) sink_(drawn);
  }
  void end_line() {
    if (bar_ && bar_->is_line_open()) sink_("\n");
    bar_.reset();
  }

  ProgressStyle style_;
  bool is_terminal_, has_colour_ = !detail::is_set("NO_COLOR");
  Sink sink_;
  Clock clock_;
  std::optional<ProgressBar> bar_;
  std::optional<std::uint64_t> target_;
  std::uint64_t seen_ = 0, step_ = 0;
  std::size_t first_ = 0;  // batch of an execution
  int epoch_ = 0;
  bool in_fit_ = false;
  const Logs nothing_;  // of a prediction
};

}  // namespace lockstep
