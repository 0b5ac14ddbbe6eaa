#pragma once

#include "lockstep/training/report/profile.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <type_traits>
#include <utility>

#include "lockstep/core/add_item.hpp"
#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/numbers/median.hpp"
#include "lockstep/training/report/summary.hpp"

namespace lockstep {

double Profile::sum(double ProfileRow::* what) const {
  return std::accumulate(rows.begin(), rows.end(), 0.0,
                         [&](double s, const ProfileRow& row) { return s + row.*what; });
}

std::string to_string(const Profile& profile) {
  const double all = profile.microseconds();
  const bool has_kernels =
      std::any_of(profile.rows.begin(), profile.rows.end(),
                  [](const ProfileRow& r) { return !r.calls.empty() && !r.calls[0].name.empty(); });
  using Row = detail::TextTable::Row;
  const bool has_peak = profile.peak_flops > 0;
  const auto shown = [&](Row row) {
    row.resize(has_peak ? 11 : 10);
    if (!has_kernels) row.erase(row.begin() + 2);
    return row;
  };
  detail::TextTable table(shown({"Layer", "Pass", "Kernel", "Calls", "us", "Share", "MB", "GB/s",
                                 "MFLOP", "GFLOP/s", "Of peak"}),
                          has_kernels ? 3 : 2, has_kernels ? 10 : 9);
  const auto time = [&](Row row, double calls, double us) {
    row.push_back(format_text("{:.{}f}", calls, calls == std::floor(calls) ? 0 : 2));
    row.push_back(format_text("{:.1f}", us));
    row.push_back(format_text("{:.1f} %", all > 0 ? 100 * us / all : 0));
    return row;
  };
  const auto work = [&](Row& row, double amount, double us) {
    row.push_back(amount > 0 ? format_text("{:.2f}", amount / 1e6) : "");
    row.push_back(amount > 0 && us > 0 ? format_text("{:.1f}", amount / us / 1e3) : "");
  };
  const auto peak = [](double share) {
    return share > 0 ? format_text("{:.1f} %", 100 * share) : std::string();
  };
  for (const ProfileRow& r : profile.rows) {
    double calls = 0;
    for (const ProfiledCall& c : r.calls) calls += c.calls;
    const bool one = r.calls.size() == 1;
    auto row = time({r.layer, r.pass, one ? r.calls[0].name : ""}, calls, r.microseconds);
    work(row, r.bytes, r.microseconds);
    work(row, r.flops, r.microseconds);
    row.push_back(peak(profile.share_of_peak(r)));
    table.add(shown(std::move(row)));
    for (const ProfiledCall& c : r.calls) {
      if (one) break;
      table.add(shown(time({"", "", c.name}, c.calls, c.microseconds)));
    }
  }
  auto total = time({"total", "", ""}, 0, all);
  total[3].clear();
  work(total, profile.bytes(), all);
  work(total, profile.flops(), all);
  total.push_back(peak(profile.share_of_peak()));
  table.add(shown(std::move(total)));
  std::string result = format_text(
      "{}, {}, {} examples; the median of {} steps\n{} A step without instrumentation: {:.1f} us\n",
      profile.device, profile.precision, profile.examples, profile.steps, table.str(),
      profile.step_microseconds);
  if (profile.event_microseconds > 0)
    result += format_text(" Two consecutive events: {:.2f} us, included in each call's time\n",
                          profile.event_microseconds);
  if (has_peak)
    result += format_text(" Peak: {:.1f} GFLOP/s, of multiply-adds on registers\n",
                          profile.peak_flops / 1e9);
  return result;
}

std::ostream& operator<<(std::ostream& out, const Profile& profile) {
  return out << to_string(profile);
}

std::string to_json(const Profile& profile) {
  using detail::json_number, detail::json_string;
  std::string rows;
  for (const ProfileRow& r : profile.rows) {
    std::string calls;
    for (const ProfiledCall& c : r.calls)
      add_item(calls, ", ",
               format_text(R"({{"name": {}, "calls": {}, "microseconds": {}}})",
                           json_string(c.name), json_number(c.calls), json_number(c.microseconds)));
    add_item(
        rows, ",\n  ",
        format_text(R"({{"layer": {}, "pass": {}, "microseconds": {}, "bytes": {}, "flops": {}, )"
                    R"("calls": [{}]}})",
                    json_string(r.layer), json_string(r.pass), json_number(r.microseconds),
                    json_number(r.bytes), json_number(r.flops), calls));
  }
  return format_text(
      R"({{"device": {}, "precision": {}, "examples": {}, "steps": {}, "step_microseconds": {}, )"
      R"("event_microseconds": {}, "microseconds": {}, "peak_flops": {}, "rows": [)"
      "\n  {}\n]}}\n",
      json_string(profile.device), json_string(profile.precision), profile.examples, profile.steps,
      json_number(profile.step_microseconds), json_number(profile.event_microseconds),
      json_number(profile.microseconds()), json_number(profile.peak_flops), rows);
}

}  // namespace lockstep

namespace lockstep::detail {

double time_per_step(std::vector<double> came, std::size_t steps, bool mixed) {
  const double all = static_cast<double>(steps), times = static_cast<double>(came.size());
  if (mixed) return std::accumulate(came.begin(), came.end(), 0.0) / all;
  const double middle = median(std::move(came));
  return times == all ? middle : middle * times / all;
}

void StepTimes::add(const WorkTimes& step) {
  for (const WorkTimes::Entry& e : step.entries()) {
    auto known = std::find_if(all_.begin(), all_.end(), [&](const Measured& m) {
      return m.call == e.call && is_same(m.work, e.work);
    });
    if (known == all_.end()) known = all_.insert(all_.end(), {e.work, e.call});
    known->calls += e.calls;
    known->microseconds.push_back(e.microseconds);
  }
}

// Work of the same kind becomes one row, in the order of its first occurrence.
void StepTimes::fill(Profile& profile, bool accumulates,
                     FunctionRef<void(ProfileRow&, const Work&)> add_size) const {
  std::vector<Work> works;  // one per row
  for (const Measured& m : all_) {
    // A device without call names reports accumulating and updating steps as one kind of work.
    const bool mixed = accumulates && m.call.empty() && m.work.pass == WorkPass::update;
    const double time = time_per_step(m.microseconds, profile.steps, mixed);
    std::size_t i = 0;
    while (i < works.size() && !is_same(works[i], m.work)) ++i;
    if (i == works.size()) {
      works.push_back(m.work);
      profile.rows.push_back({name_of(m.work), lockstep::to_string(m.work.pass)});
      add_size(profile.rows.back(), m.work);
    }
    profile.rows[i].microseconds += time;
    const double calls = static_cast<double>(m.calls) / static_cast<double>(profile.steps);
    profile.rows[i].calls.push_back({m.call, calls, time});
  }
}

void check_timer(FunctionRef<void(WorkTimes*)> set_timer) {
  WorkTimes times;
  set_timer(&times);
  set_timer(nullptr);
}

Profile measure_steps(StepTimes& times, const ProfileOptions& options, FunctionRef<void()> next,
                      FunctionRef<void()> train, FunctionRef<void(WorkTimes*)> set_timer) {
  std::vector<double> steps;
  for (std::size_t i = 0; i < options.warm_up + options.steps; ++i) {
    next();
    const auto begin = std::chrono::steady_clock::now();
    train();
    if (i >= options.warm_up)
      steps.push_back(
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
              .count());
  }
  Profile result;
  result.steps = options.steps;
  result.step_microseconds = median(std::move(steps));
  for (std::size_t i = 0; i < options.steps; ++i) {
    next();
    WorkTimes step;
    set_timer(&step);
    try {
      train();
    } catch (...) {
      try {
        set_timer(nullptr);
      } catch (...) {  // the timer is off even if stopping it throws
      }
      throw;
    }
    set_timer(nullptr);
    result.event_microseconds =
        i == 0 ? step.timer_overhead() : std::min(result.event_microseconds, step.timer_overhead());
    times.add(step);
  }
  return result;
}

}  // namespace lockstep::detail
