#pragma once

#include "lockstep/training/report/step_recorder.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "lockstep/core/add_item.hpp"
#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/port.hpp"

namespace lockstep::detail {

void TraceLane::reserve(std::size_t events) { events_.reserve(std::min(events, limit)); }

// The calls of one sequence have no gaps between them. The device's clock is placed on the host's
// by the end of the sequence, at which the host has just stopped to wait.
void TraceLane::begin_calls(double microseconds) {
  call_end_ = std::max(call_end_, trace_time() - static_cast<std::int64_t>(1e3 * microseconds));
}

void TraceLane::add(const Work& work, std::string_view call, double microseconds) {
  auto name = std::find(calls_.begin(), calls_.end(), call);
  if (name == calls_.end()) name = calls_.insert(calls_.end(), std::string(call));
  const std::int64_t begin = call_end_;
  call_end_ += static_cast<std::int64_t>(1e3 * microseconds);
  push({.begin = begin, .end = call_end_, .work = work, .call = *name});
}

void TraceLane::begin_exchange(const char* what, std::size_t bytes) {
  operation_ = {.begin = trace_time(),
                .work = {.pass = WorkPass::exchange, .part = what},
                .bytes = bytes,
                .kind = TraceEvent::Kind::exchange};
}

void TraceLane::end_exchange() {
  operation_.end = trace_time();
  push(operation_);
}

void TraceLane::begin(Phase phase, std::uint64_t step) {
  const std::int64_t now = trace_time();
  if (phase_.phase != Phase::idle) {
    phase_.end = now;
    push(phase_);
  }
  phase_ = {.begin = now, .kind = TraceEvent::Kind::phase, .phase = phase};
  phase_.work.step = step;
}

ClockOffset clock_offset(std::span<const TraceRoundTrip> chief,
                         std::span<const TraceRoundTrip> process) {
  std::int64_t low = std::numeric_limits<std::int64_t>::min() / 2, high = -low;
  for (std::size_t i = 0; i < std::min(chief.size(), process.size()); ++i) {
    low = std::max(low, process[i].begin - chief[i].end);
    high = std::min(high, process[i].end - chief[i].begin);
  }
  return {low + (high - low) / 2, (high - low + 1) / 2};
}

void StepRecorder::open(std::size_t replicas, std::size_t first, bool on_host, std::size_t events) {
  first_ = first;
  on_host_ = on_host;
  for (std::size_t i = 0; i < replicas; ++i) {
    replicas_.emplace_back().reserve(events);
    backgrounds_.emplace_back().reserve(events / 4);
  }
  loop_.reserve(events / 4);
}

void StepRecorder::begin(Phase phase, std::uint64_t step) {
  // Ends a label that no wait has ended: the loop runs in replica 0's thread.
  if (on_host_ && !replicas_.empty()) replicas_[0].begin(Work{});
  loop_.begin(phase, step);
}

std::size_t StepRecorder::dropped() const {
  std::size_t all = loop_.dropped();
  for (const auto* const lanes : {&replicas_, &backgrounds_})
    for (const TraceLane& lane : *lanes) all += lane.dropped();
  return all;
}

[[gnu::cold]] inline std::string name_of_phase(Phase phase) {
  if (phase == Phase::forward) return "step";
  if (phase == Phase::callback) return "callbacks";
  if (phase == Phase::reduce) return "exchange";
  return to_string(phase);
}

[[gnu::cold]] inline std::string event_json(const TraceEvent& e, std::size_t rank,
                                            std::size_t thread, std::int64_t zero) {
  const bool is_phase = e.kind == TraceEvent::Kind::phase;
  const std::string name = is_phase ? name_of_phase(e.phase) : name_of(e.work);
  std::string arguments;
  const bool has_step = e.kind != TraceEvent::Kind::exchange && e.work.pass != WorkPass::evaluation;
  if (has_step) add_item(arguments, ", ", format_text(R"("step": {})", e.work.step));
  if (!e.call.empty()) add_item(arguments, ", ", R"("call": )" + json_string(e.call));
  if (e.bytes > 0) add_item(arguments, ", ", format_text(R"("bytes": {})", e.bytes));
  if (e.work.resumes) add_item(arguments, ", ", R"("resumes": true)");
  // Three digits are whole nanoseconds, so events that touch do not overlap.
  return format_text(
      R"({{"name": {}, "cat": "{}", "ph": "X", "ts": {:.3f}, "dur": {:.3f}, "pid": {}, )"
      R"("tid": {}, "args": {{{}}}}})",
      json_string(name), is_phase ? "loop" : to_string(e.work.pass),
      static_cast<double>(e.begin - zero) / 1e3, static_cast<double>(e.end - e.begin) / 1e3, rank,
      thread, arguments);
}

[[gnu::cold]] inline std::string name_json(const char* what, std::size_t rank, std::size_t thread,
                                           const std::string& name) {
  return format_text(R"({{"name": "{}", "ph": "M", "pid": {}, "tid": {}, "args": {{"name": {}}}}})",
                     what, rank, thread, json_string(name));
}

std::string StepRecorder::to_json(std::size_t rank, std::int64_t zero) const {
  std::string all = name_json("process_name", rank, 0, format_text("rank {}", rank));
  const auto name_thread = [&](std::size_t thread, const std::string& name) {
    all += ",\n" + name_json("thread_name", rank, thread, name);
  };
  const auto add = [&](std::size_t thread, std::vector<TraceEvent> events) {
    std::sort(events.begin(), events.end(), [](const TraceEvent& a, const TraceEvent& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    for (const TraceEvent& e : events) all += ",\n" + event_json(e, rank, thread, zero);
  };
  // Threads: 0 is the loop; replica i has 2 i + 1 and 2 i + 2, except replica 0 on the host.
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    const bool in_loop = i == 0 && on_host_;
    const std::size_t thread = in_loop ? 0 : 2 * i + 1;
    std::vector<TraceEvent> events = replicas_[i].events();
    if (in_loop) events.insert(events.end(), loop_.events().begin(), loop_.events().end());
    name_thread(thread, format_text("replica {}", first_ + i));
    add(thread, std::move(events));
    if (backgrounds_[i].events().empty()) continue;
    name_thread(2 * i + 2, format_text("exchange of replica {}", first_ + i));
    add(2 * i + 2, backgrounds_[i].events());
  }
  if (!on_host_) {
    name_thread(0, "loop");
    add(0, loop_.events());
  }
  return all;
}

std::string trace_json(std::span<const std::string> events, std::span<const ClockOffset> clocks,
                       std::size_t dropped) {
  std::string all, offsets, errors;
  for (const std::string& of_rank : events) add_item(all, ",\n", of_rank);
  for (const ClockOffset& c : clocks) {
    add_item(offsets, ", ", format_text("{:.3f}", static_cast<double>(c.nanoseconds) / 1e3));
    add_item(errors, ", ", format_text("{:.3f}", static_cast<double>(c.error) / 1e3));
  }
  if (dropped > 0)
    log(LogLevel::warning,
        format_text("trace: {} events are missing, since a thread had more than {}; trace fewer "
                    "steps",
                    dropped, TraceLane::limit));
  return format_text(
      "{{\"traceEvents\": [\n{}\n],\n\"displayTimeUnit\": \"ms\",\n\"otherData\": "
      "{{\"clock_offset_us\": [{}], \"clock_error_us\": [{}], \"dropped_events\": {}}}}}\n",
      all, offsets, errors, dropped);
}

std::string StepRecorder::gathered(AnyJob& replicas) const {
  const TrainingPlace place = replicas.place();
  if (place.is_alone)
    return trace_json(std::vector{to_json(0, begin_)}, std::vector<ClockOffset>(1), dropped());
  // Each process computes all offsets from the same numbers, and moves its events to the chief's
  // clock itself. The last two numbers are the beginning of the trace and the dropped events.
  constexpr std::size_t rounds = 64;
  std::vector<TraceRoundTrip> own = replicas.round_trips(rounds);
  own.push_back({begin_, static_cast<std::int64_t>(dropped())});
  std::vector<std::vector<TraceRoundTrip>> all;
  for (const std::vector<std::byte>& bytes : replicas.gather(std::as_bytes(std::span(own)))) {
    all.emplace_back(bytes.size() / sizeof(TraceRoundTrip));
    std::memcpy(all.back().data(), bytes.data(), bytes.size());
  }
  std::vector<ClockOffset> clocks;
  std::int64_t zero = all[0].back().begin;  // the earliest beginning, by the chief's clock
  std::size_t lost = 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const TraceRoundTrip last = all[rank].back();
    const std::span of_chief(all[0].data(), rounds), of_rank(all[rank].data(), rounds);
    clocks.push_back(rank == 0 ? ClockOffset{} : clock_offset(of_chief, of_rank));
    zero = std::min(zero, last.begin - clocks.back().nanoseconds);
    lost += static_cast<std::size_t>(last.end);
  }
  const std::string mine = to_json(place.rank, zero + clocks[place.rank].nanoseconds);
  std::vector<std::string> events;
  for (const std::vector<std::byte>& bytes : replicas.gather(std::as_bytes(std::span(mine))))
    events.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return place.is_chief ? trace_json(events, clocks, lost) : std::string();
}

/// Makes a StepRecorder for a trace.
struct PluggedTrace final : TracePort {
  std::shared_ptr<StepTrace> make() const override { return std::make_shared<StepRecorder>(); }
};
#ifdef LOCKSTEP_SEPARATE_COMPILATION
template <>
const TracePort* port<TracePort>() {
  return plug<TracePort, PluggedTrace>();
}
#else
inline const Plugged<TracePort, PluggedTrace> plugged_trace;
#endif

}  // namespace lockstep::detail
