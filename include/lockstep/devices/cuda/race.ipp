#pragma once

#include "lockstep/devices/cuda/race.hpp"

#include <algorithm>
#include <utility>

#include "lockstep/core/fmt_core.hpp"
#include "lockstep/core/log.hpp"

namespace lockstep::detail::cuda {

std::size_t Race::winner(CudaContext& context, std::size_t ways, const Run& run) {
  const Commands::AtOnce at_once(context.commands());
  Race race(context, run);
  for (std::size_t i = 0; i < ways; ++i) race.enter(i);
  race.hold();
  if (race.runners_.empty()) throw DeviceError(race.why_);
  return std::min_element(race.runners_.begin(), race.runners_.end(),
                          [](const Runner& a, const Runner& b) { return a.least < b.least; })
      ->way;
}

template <class F>
void Race::attempt(Runner& r, const F& f) {
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

void Race::enter(std::size_t way) {
  Runner runner{way};
  attempt(runner, [&] {
    run_(way);
    check(driver().cuStreamSynchronize(context_.stream()), "waiting for the GPU");
    runners_.push_back(std::move(runner));
  });
}

void Race::hold() {
  const Commands::Unchecked unchecked(context_.commands());
  for (Runner& r : runners_)
    if (runners_.size() > 1) attempt(r, [&] { prepare(r); });
  leave_out_failed();
  float warm = 0;
  // The number of rounds is limited in case that events measure nothing.
  for (int i = 0; i < 1000 && warm < warm_up && runners_.size() > 1; ++i) warm += round(false);
  for (int i = 0; i < rounds && runners_.size() > 1; ++i) round(true);
}

void Race::prepare(Runner& r) {
  mark(0);
  run_(r.way);
  mark(1);
  const float once = milliseconds(0, 1);
  if (once * most_copies > longest_graph)
    r.copies = std::max(1, static_cast<int>(longest_graph / once));
  try {
    const Undisturbed undisturbed;
    r.graph = ReadyGraph(Graph(context_.stream(), [&] { run_copies(r); }));
  } catch (const DeviceError& error) {
    // Training runs such a way call by call, too.
    context_.commands().abandon();
    if (!told.exchange(true))
      log(LogLevel::info,
          fmt::format(
              "cuda: a way to do some work cannot be recorded as a graph, and is measured call by "
              "call: {}",
              error.what()));
  }
}

void Race::run_copies(const Runner& r) {
  for (int i = 0; i < r.copies; ++i) run_(r.way);
}

float Race::round(bool counts) {
  fill_queue();
  mark(0);
  for (std::size_t i = 0; i < runners_.size(); ++i) {
    Runner& r = runners_[i];
    attempt(r, [&] {
      if (r.graph)
        launch(r);
      else
        run_copies(r);
    });
    mark(i + 1);
  }
  float all = 0, best = std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < runners_.size(); ++i) {
    Runner& r = runners_[i];
    const float time = milliseconds(i, i + 1);
    all += time;
    if (counts) r.least = std::min(r.least, time / static_cast<float>(r.copies));
    if (!r.failed) best = std::min(best, r.least);
  }
  if (counts)
    for (Runner& r : runners_) r.failed = r.failed || r.least > hopeless * best;
  leave_out_failed();
  return all;
}

void Race::fill_queue() {
  const auto last =
      std::find_if(runners_.rbegin(), runners_.rend(), [](const Runner& r) { return !!r.graph; });
  if (last != runners_.rend()) attempt(*last, [&] { launch(*last); });
}

void Race::leave_out_failed() {
  std::erase_if(runners_, [](const Runner& r) { return r.failed; });
}

void Race::mark(std::size_t i) {
  while (events_.size() <= i) events_.emplace_back(CU_EVENT_DEFAULT);
  events_[i].record(context_.stream());
}

float Race::milliseconds(std::size_t from, std::size_t to) {
  check(driver().cuEventSynchronize(events_[to].get()), "waiting for the GPU");
  float time = 0;
  check(driver().cuEventElapsedTime(&time, events_[from].get(), events_[to].get()),
        "measuring time on the GPU");
  return time;
}

}  // namespace lockstep::detail::cuda
