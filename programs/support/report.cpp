#include "support/report.hpp"

#include <sys/resource.h>

#include <algorithm>

#include <lockstep/core/exchange_progress.hpp>

namespace support {

namespace {

std::size_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
}

/// Times, or bytes, of steps of which a process hears several at once: each is the mean of the last
/// `each`.
std::vector<double> averaged(const std::vector<double>& times, std::size_t each) {
  std::vector<double> result;
  double sum = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    sum += times[i];
    if (i >= each) sum -= times[i - each];
    result.push_back(sum / static_cast<double>(std::min(i + 1, each)));
  }
  return result;
}

}  // namespace

void Recorder::on_train_begin(const lockstep::Logs&) {
  has_begun = true;
  first_step = params().first_step;
}
void Recorder::on_epoch_begin(int, const lockstep::Logs&) {
  epoch_start_ = last_ = Clock::now();
  last_sent_ = lockstep::sent_bytes();
}
void Recorder::on_train_batch_begin(std::size_t step, const lockstep::Logs&) { first_ = step; }
void Recorder::on_train_batch_end(std::size_t step, const lockstep::Logs& logs) {
  const auto now = Clock::now();
  const std::size_t executed = step - first_ + 1;
  steps += executed;
  step_ms.push_back(std::chrono::duration<double, std::milli>(now - last_).count() /
                    static_cast<double>(executed));
  last_ = now;
  const std::uint64_t sent = lockstep::sent_bytes();
  step_bytes.push_back(static_cast<double>(sent - last_sent_) / static_cast<double>(executed));
  last_sent_ = sent;
  step_loss.push_back(logs.step("loss"));
  if (logs.get("accuracy")) step_accuracy.push_back(logs.step("accuracy"));
}
void Recorder::on_epoch_end(int, const lockstep::Logs& logs) {
  auto& epoch = epochs.emplace_back();
  for (const auto& [name, value] : logs) epoch.emplace_back(name, value);
  epoch.emplace_back(  // training only, without validation
      "seconds", std::chrono::duration<double>(last_ - epoch_start_).count());
}

void Report::describe(Made what, bool is_chief) {
  made = std::move(what);
  is_requested = is_chief;
}

void Report::finish(const Recorder& recorder, std::vector<std::string> replica_digests,
                    std::size_t planned_bytes, const lockstep::UpdateCounts& updates) {
  if (made) made->first_step = recorder.first_step;
  run = Run{recorder.step_loss,
            recorder.step_accuracy,
            averaged(recorder.step_ms, made ? made->heard_together : 1),
            averaged(recorder.step_bytes, made ? made->heard_together : 1),
            recorder.epochs,
            std::move(replica_digests),
            planned_bytes,
            peak_resident_bytes(),
            updates,
            recorder.steps};
}

void Report::fail(const std::string& what) {
  error = what;
  is_requested = true;
}

std::string Report::rank_prefix() const {
  return made && made->rank > 0 ? "rank " + std::to_string(made->rank) + ": " : "";
}

}  // namespace support
