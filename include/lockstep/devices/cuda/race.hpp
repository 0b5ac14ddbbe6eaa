/// \file
/// Which of several ways to do the same work is the fastest on a GPU. Invariants: the GPU's time is
/// compared, not the host's; every way meets the same clocks and caches; a way that fails is left
/// out.
///
///     try each way       loads its kernels; whatever fails is out
///     record each way    up to 20 runs as one graph, so that the launch costs next to nothing
///     rounds             a graph that is not measured, event, graph 1, event, graph 2, ... event;
///                        the host waits at the end
///       warm-up          5 ms: an idle GPU lowers its clocks
///       5 that count     the least time of each; slower than three times the best: out
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/log.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/devices/cuda/context.hpp"
#include "lockstep/devices/cuda/graph.hpp"
#include "lockstep/devices/cuda/stream.hpp"

namespace lockstep::detail::cuda {

/// A comparison of ways.
class Race {
 public:
  /// `run(i)` enqueues the work of way i. It is called again while a graph is recorded, so it only
  /// enqueues, except on its first call.
  using Run = std::function<void(std::size_t)>;

  /// The number of the fastest of `ways`; the first of equals. A single one is run once, to see
  /// that it works. \throws OutOfMemory; DeviceError with the first reason, if all fail.
  [[gnu::cold]] static std::size_t winner(CudaContext& context, std::size_t ways, const Run& run) {
    const Commands::AtOnce at_once(context.commands());
    Race race(context, run);
    for (std::size_t i = 0; i < ways; ++i) race.enter(i);
    race.hold();
    if (race.runners_.empty()) throw DeviceError(race.why_);
    return std::min_element(race.runners_.begin(), race.runners_.end(),
                            [](const Runner& a, const Runner& b) { return a.least < b.least; })
        ->way;
  }

  static constexpr int most_copies = 20, rounds = 5;
  /// In milliseconds: a graph has fewer runs if it would take longer.
  static constexpr float longest_graph = 2, warm_up = 5;
  /// A way is dropped if it takes more than this multiple of the best way's time.
  static constexpr float hopeless = 3;
  /// Whether the log has why a way cannot be recorded: once in a process.
  static inline std::atomic<bool> told{false};

 private:
  struct Runner {
    std::size_t way;
    int copies = most_copies;
    ReadyGraph graph{};                                    // none: the way cannot be recorded
    float least = std::numeric_limits<float>::infinity();  // milliseconds of one run
    bool failed = false;
  };

  Race(CudaContext& context, const Run& run) : context_(context), run_(run) {}

  void enter(std::size_t way) {
    Runner runner{way};
    attempt(runner, [&] {
      run_(way);
      check(driver().cuStreamSynchronize(context_.stream()), "waiting for the GPU");
      runners_.push_back(std::move(runner));
    });
  }
  void hold() {
    const Commands::Unchecked unchecked(context_.commands());
    for (Runner& r : runners_)
      if (runners_.size() > 1) attempt(r, [&] { prepare(r); });
    leave_out_failed();
    float warm = 0;
    // The number of rounds is limited in case that events measure nothing.
    for (int i = 0; i < 1000 && warm < warm_up && runners_.size() > 1; ++i) warm += round(false);
    for (int i = 0; i < rounds && runners_.size() > 1; ++i) round(true);
  }

  void prepare(Runner& r) {
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
            text({"cuda: a way to do some work cannot be recorded as a graph, and is measured "
                  "call by call: ",
                  error.what()}));
    }
  }
  void run_copies(const Runner& r) {
    for (int i = 0; i < r.copies; ++i) run_(r.way);
  }

  /// Runs all ways in turn, and returns the time of all.
  float round(bool counts) {
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

  /// Keeps the GPU busy while the host launches the first way. On an idle GPU the first event would
  /// be stamped at once, and that way alone would be charged for the host's launch. The last graph
  /// is used, so that each way follows the same one in every round. Each graph takes the GPU longer
  /// than the host needs for an event and a launch, so the queue stays filled.
  void fill_queue() {
    const auto last =
        std::find_if(runners_.rbegin(), runners_.rend(), [](const Runner& r) { return !!r.graph; });
    if (last != runners_.rend()) attempt(*last, [&] { launch(*last); });
  }
  void launch(const Runner& r) { r.graph.launch(context_.stream()); }

  template <class F>
  void attempt(Runner& r, const F& f) {
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
  void leave_out_failed() {
    std::erase_if(runners_, [](const Runner& r) { return r.failed; });
  }

  void mark(std::size_t i) {
    while (events_.size() <= i) events_.emplace_back(CU_EVENT_DEFAULT);
    events_[i].record(context_.stream());
  }
  /// Waits for the last event, if need be.
  float milliseconds(std::size_t from, std::size_t to) {
    check(driver().cuEventSynchronize(events_[to].get()), "waiting for the GPU");
    float time = 0;
    check(driver().cuEventElapsedTime(&time, events_[from].get(), events_[to].get()),
          "measuring time on the GPU");
    return time;
  }

  CudaContext& context_;
  const Run& run_;
  std::vector<Runner> runners_;
  std::deque<Event> events_;
  std::string why_;
};

}  // namespace lockstep::detail::cuda
