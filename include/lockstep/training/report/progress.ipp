#pragma once

#include "lockstep/training/report/progress.hpp"

#include <time.h>  // NOLINT(modernize-deprecated-headers): POSIX
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/format_text.hpp"

namespace lockstep {

Progress::Progress(ProgressStyle style, std::FILE* stream)
    : Progress(
          style,
          [stream](std::string_view text) {
            std::fwrite(text.data(), 1, text.size(), stream);
            std::fflush(stream);
          },
          ::isatty(::fileno(stream)) == 1) {}

Progress::Progress(ProgressStyle style, Sink sink, bool is_terminal, Clock clock)
    : style_(resolve(style, is_terminal)),
      is_terminal_(is_terminal),
      sink_(std::move(sink)),
      clock_(std::move(clock)) {}

Progress::~Progress() {
  try {
    end_line();
  } catch (...) {
    // A failing sink must not replace an exception in flight.
  }
}

void Progress::on_train_begin(const Logs&) {
  in_fit_ = true;
  target_ = params().steps;
  step_ = reported_ = params().first_step;
  reported_epoch_.reset();
  epoch_step_.reset();
  if (style_ != ProgressStyle::json) return;
  const auto& p = params();
  std::string line =
      format_text(R"({{"event":"train_begin","rank":{},"replicas":{})", p.rank, p.replicas);
  if (p.steps && p.epochs >= p.initial_epoch)
    line += format_text(R"(,"steps":{})",
                        *p.steps * static_cast<std::uint64_t>(p.epochs - p.initial_epoch));
  write_json(line);
}

void Progress::on_train_end(const Logs&) {
  in_fit_ = false;
  end_line();
  if (style_ == ProgressStyle::json) sink_("{\"event\":\"train_end\"}\n");
}

void Progress::on_epoch_begin(int epoch, const Logs&) {
  epoch_ = epoch;
  epoch_step_.reset();
  if (!has_bar()) return;
  begin_bar();
  if (params().epochs > 1) sink_(format_text("Epoch {}/{}\n", epoch + 1, params().epochs));
}

void Progress::on_epoch_end(int epoch, const Logs& logs) {
  if (has_bar()) end_bar(logs);
  const bool is_repeated = epoch <= reported_epoch_;
  if (!is_repeated) reported_epoch_ = epoch;
  if (is_repeated || !is_json_chief()) return;
  std::string line = format_text(R"({{"event":"epoch_end","epoch":{})", epoch);
  for (const auto& [name, value] : logs) add_json(line, name, value);
  write_json(line);
}

void Progress::on_train_batch_begin(std::size_t batch, const Logs&) {
  if (!epoch_step_) epoch_step_ = step_ - batch;
}

// An execution may have several steps: the hook gets the number of its last batch.
void Progress::on_train_batch_end(std::size_t batch, const Logs& logs) {
  step_ = epoch_step_.value_or(0) + batch + 1;
  const std::uint64_t step = step_ - 1;
  if (has_bar()) move_bar(batch, logs);
  const bool is_repeated = step_ <= reported_;
  reported_ = std::max(reported_, step_);
  if (is_repeated || !is_json_chief()) return;
  std::string line = format_text(R"({{"event":"step","step":{},"epoch":{})", step, epoch_);
  for (const auto& entry : logs) add_json(line, entry.first, logs.step(entry.first));
  write_json(line);
}

void Progress::on_workers_change(const WorkersChange& change) {
  in_fit_ = true;
  step_ = change.step;
  epoch_step_ = change.step - change.batch;
}

void Progress::on_test_begin(const Logs&) { begin_alone(); }

void Progress::on_test_batch_end(std::size_t batch, const Logs& logs) {
  if (!in_fit_ && has_bar()) move_bar(batch, logs);
}

void Progress::on_test_end(const Logs& logs) {
  if (!in_fit_ && has_bar()) end_bar(logs);
}

void Progress::on_predict_begin(const Logs&) { begin_alone(); }

void Progress::on_predict_batch_end(std::size_t batch, const Logs&) {
  if (!in_fit_ && has_bar()) move_bar(batch, nothing_);
}

void Progress::on_predict_end(const Logs&) {
  if (!in_fit_ && has_bar()) end_bar(nothing_);
}

double Progress::seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void Progress::add_json(std::string& line, std::string_view name, double value) {
  line += format_text(",{}:{}", detail::json_string(name), detail::json_number(value));
}

void Progress::write_json(std::string& line) { sink_(line += "}\n"); }

bool Progress::is_json_chief() const { return style_ == ProgressStyle::json && params().rank == 0; }

bool Progress::has_bar() const {
  return style_ != ProgressStyle::json && style_ != ProgressStyle::none && params().rank == 0;
}

void Progress::begin_alone() {
  if (in_fit_ || !has_bar()) return;
  target_ = params().steps;
  begin_bar();
}

void Progress::begin_bar() {
  seen_ = 0;
  bar_.emplace(style_, target_, is_terminal_, clock_(), has_colour_);
}

void Progress::move_bar(std::size_t batch, const Logs& logs) {
  if (!bar_) begin_bar();
  seen_ = std::uint64_t{batch} + 1;
  write(bar_->update(seen_, logs, clock_()));
}

void Progress::end_bar(const Logs& logs) {
  if (!bar_) begin_bar();
  if (!target_) target_ = seen_;
  write(bar_->finish(seen_, logs, clock_()));
}

void Progress::write(const std::string& drawn) {
  if (!drawn.empty()) sink_(drawn);
}

void Progress::end_line() {
  if (bar_ && bar_->is_line_open()) sink_("\n");
  bar_.reset();
}

}  // namespace lockstep
