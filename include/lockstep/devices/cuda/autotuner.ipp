#pragma once

#include "lockstep/devices/cuda/autotuner.hpp"

#include <algorithm>
#include <utility>

#include "lockstep/core/format_text.hpp"
#include "lockstep/core/log.hpp"

namespace lockstep::detail::cuda {

std::size_t Autotuner::fastest(CudaContext& context, std::size_t count, const Run& run) {
  // A measurement happens once, so its commands must not become stored segments.
  const Commands::Eager eager(context.commands());
  Autotuner tuner(context, run);
  for (std::size_t i = 0; i < count; ++i) tuner.add(i);
  tuner.measure();
  if (tuner.candidates_.empty()) throw DeviceError(tuner.why_);
  return std::min_element(
             tuner.candidates_.begin(), tuner.candidates_.end(),
             [](const Candidate& a, const Candidate& b) { return a.fastest_ms < b.fastest_ms; })
      ->index;
}

template <class F>
void Autotuner::attempt(Candidate& r, const F& f) {
  try {
    f();
  } catch (const OutOfMemory&) {
    throw;
  } catch (const DeviceError& error) {
    context_.commands().abandon();
    r.failed = true;
    if (why_.empty()) why_ = error.what();
  }
}

void Autotuner::add(std::size_t index) {
  Candidate candidate{index};
  attempt(candidate, [&] {
    run_(index);
    check(driver().cuStreamSynchronize(context_.stream()), "waiting for the GPU");
    candidates_.push_back(std::move(candidate));
  });
}

void Autotuner::measure() {
  const Commands::Unchecked unchecked(context_.commands());
  for (Candidate& r : candidates_)
    if (candidates_.size() > 1) attempt(r, [&] { capture(r); });
  drop_failed();
  float warm = 0;
  // The limit on the warm-up rounds covers a driver whose events measure nothing.
  for (int i = 0; i < 1000 && warm < warm_up && candidates_.size() > 1; ++i) warm += round(false);
  for (int i = 0; i < rounds && candidates_.size() > 1; ++i) round(true);
}

void Autotuner::capture(Candidate& r) {
  record_event(0);
  run_(r.index);
  record_event(1);
  // This time includes the launch, so it only serves to limit the graph's length.
  const float once = milliseconds(0, 1);
  if (once * max_copies > longest_graph)
    r.copies = std::max(1, static_cast<int>(longest_graph / once));
  try {
    const CaptureLock lock;
    r.graph = GraphExec(Graph(context_.stream(), [&] { run_copies(r); }));
  } catch (const DeviceError& error) {
    // Training runs such a candidate call by call too, so the comparison stays fair.
    context_.commands().abandon();
    if (!logged.exchange(true))
      log(LogLevel::info,
          format_text(
              "cuda: an autotuning candidate cannot be captured as a graph and is measured call by "
              "call: {}",
              error.what()));
  }
}

void Autotuner::run_copies(const Candidate& r) {
  for (int i = 0; i < r.copies; ++i) run_(r.index);
}

float Autotuner::round(bool counts) {
  fill_queue();
  record_event(0);
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    Candidate& r = candidates_[i];
    attempt(r, [&] {
      if (r.graph)
        launch(r);
      else
        run_copies(r);
    });
    record_event(i + 1);
  }
  float all = 0, best = std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    Candidate& r = candidates_[i];
    const float time = milliseconds(i, i + 1);
    all += time;
    // The minimum: interference by other programs only ever adds time.
    if (counts) r.fastest_ms = std::min(r.fastest_ms, time / static_cast<float>(r.copies));
    if (!r.failed) best = std::min(best, r.fastest_ms);
  }
  if (counts)
    for (Candidate& r : candidates_) r.failed = r.failed || r.fastest_ms > cutoff * best;
  drop_failed();
  return all;
}

void Autotuner::fill_queue() {
  const auto last = std::find_if(candidates_.rbegin(), candidates_.rend(),
                                 [](const Candidate& r) { return !!r.graph; });
  // Without any graph the candidates run call by call and need no filled queue.
  if (last != candidates_.rend()) attempt(*last, [&] { launch(*last); });
}

void Autotuner::drop_failed() {
  std::erase_if(candidates_, [](const Candidate& r) { return r.failed; });
}

void Autotuner::record_event(std::size_t i) {
  while (events_.size() <= i) events_.emplace_back(CU_EVENT_DEFAULT);
  events_[i].record(context_.stream());
}

float Autotuner::milliseconds(std::size_t from, std::size_t to) {
  check(driver().cuEventSynchronize(events_[to].get()), "waiting for the GPU");
  float time = 0;
  check(driver().cuEventElapsedTime(&time, events_[from].get(), events_[to].get()),
        "measuring time on the GPU");
  return time;
}

}  // namespace lockstep::detail::cuda
