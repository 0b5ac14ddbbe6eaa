/// \file
/// The work of some training steps with times, for a trace in Chrome's format. Invariants: each
/// thread writes to its own lane; events of a lane nest or follow each other; nothing allocates
/// while a step runs, except beyond the expected number of steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/concepts/collective.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/phase.hpp"
#include "lockstep/core/work.hpp"
#include "lockstep/core/work_times.hpp"
#include "lockstep/training/report/step_trace.hpp"
#include "lockstep/training/step/any_replicas.hpp"

namespace lockstep::detail {

/// Something that a thread or a device did from `begin` to `end`.
struct TraceEvent {
  /// A label, an operation of an exchange within a label, or a phase of the loop.
  enum class Kind : std::uint8_t { work, exchange, phase };

  std::int64_t begin = 0, end = 0;  ///< see trace_time
  Work work{};
  std::string_view call{};  ///< of a device that reports calls: name of the kernel
  std::size_t bytes = 0;    ///< of gradients or weights; operations of an exchange only
  Kind kind = Kind::work;
  Phase phase = Phase::idle;
};

/// The events of one thread. As a WorkTimes it is notified by a device's context: of the labels on
/// a synchronous device, of each finished call on an asynchronous one.
class TraceLane final : public WorkTimes, public ExchangeListener {
 public:
  /// More events than this are only counted: about 100 MB of memory.
  static constexpr std::size_t limit = 1'000'000;

  LOCKSTEP_COLD_DECL void reserve(std::size_t events);

  // WorkTimes
  void begin(const Work& work) override {
    const std::int64_t now = trace_time();
    if (now_.pass != WorkPass::none) push({.begin = since_, .end = now, .work = now_});
    now_ = work;
    since_ = now;
  }
  Work now() const override { return now_; }
  LOCKSTEP_COLD_DECL void begin_calls(double microseconds) override;
  LOCKSTEP_COLD_DECL void add(const Work& work, std::string_view call,
                              double microseconds) override;

  // ExchangeListener
  LOCKSTEP_COLD_DECL void begin_exchange(const char* what, std::size_t bytes) override;
  LOCKSTEP_COLD_DECL void end_exchange() override;

  /// Begins a phase of the training loop, which ends the previous one.
  LOCKSTEP_COLD_DECL void begin(Phase phase, std::uint64_t step);

  const std::vector<TraceEvent>& events() const { return events_; }
  std::size_t dropped() const { return dropped_; }

 private:
  void push(const TraceEvent& event) {
    if (events_.size() < limit)
      events_.push_back(event);
    else
      ++dropped_;
  }

  std::vector<TraceEvent> events_;
  std::size_t dropped_ = 0;
  Work now_{};
  std::int64_t since_ = 0;
  TraceEvent operation_{}, phase_{};  // that have begun
  std::int64_t call_end_ = 0;         // of the last call that `add` reported
  std::deque<std::string> calls_;     // names of calls; a deque, since events point to them
};

/// A process' clock minus the chief's, and the most by which that may be wrong, in nanoseconds.
struct ClockOffset {
  std::int64_t nanoseconds = 0, error = 0;
};

/// The offset of a clock from the same operations on both sides. No process leaves an all-gather
/// before all have entered it, so with true times b of entering and e of leaving:
///
///     chief    b0 |-----------| e0       b1 <= e0  and  b0 <= e1, so for the offset d
///     process     b1 |----------| e1     b1 - e0 <= d <= e1 - b0
///
/// \returns the midpoint of the narrowest bounds. Source: Cristian, Probabilistic clock
/// synchronization, Distributed Computing 3 (1989).
LOCKSTEP_COLD_DECL ClockOffset clock_offset(std::span<const TraceRoundTrip> chief,
                                            std::span<const TraceRoundTrip> process);

/// The traced steps of one process.
///
///     lane of replica i      layers, loss, update, and the exchange in the replica's thread
///     lane of background i   buckets that a communication thread exchanges
///     lane of the loop       data, steps, callbacks, checkpoints; on the CPU in replica 0's thread
class StepRecorder final : public StepTrace {
 public:
  StepRecorder() : begin_(trace_time()) {}

  LOCKSTEP_COLD_DECL void open(std::size_t replicas, std::size_t first, bool on_host,
                               std::size_t events) override;
  Lanes lanes(std::size_t i) override { return {&replicas_[i], &replicas_[i], &backgrounds_[i]}; }
  TraceLane& replica(std::size_t i) { return replicas_[i]; }
  TraceLane& background(std::size_t i) { return backgrounds_[i]; }
  const TraceLane& loop() const { return loop_; }
  LOCKSTEP_COLD_DECL void begin(Phase phase, std::uint64_t step) override;
  LOCKSTEP_COLD_DECL std::string gathered(AnyJob& replicas) const override;

  /// When recording began.
  std::int64_t begin_time() const { return begin_; }
  LOCKSTEP_COLD_DECL std::size_t dropped() const;
  /// Chrome's trace events of this process, "X" for each event and "M" for names, separated by
  /// commas. `zero`: the time that becomes 0, by this process' clock.
  LOCKSTEP_COLD_DECL std::string to_json(std::size_t rank, std::int64_t zero) const;

 private:
  std::int64_t begin_;
  std::size_t first_ = 0;
  bool on_host_ = true;
  std::deque<TraceLane> replicas_, backgrounds_;
  TraceLane loop_;
};

/// The trace of a job as one JSON object in Chrome's format. Logs a warning if events were dropped.
/// `events`: StepRecorder::to_json of each process; `clocks`: their offsets, the chief's first.
LOCKSTEP_COLD_DECL std::string trace_json(std::span<const std::string> events,
                                          std::span<const ClockOffset> clocks, std::size_t dropped);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/report/step_recorder.ipp"
#endif
