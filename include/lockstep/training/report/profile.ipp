#pragma once

#include "lockstep/training/report/profile.hpp"

#include <cmath>
#include <numeric>
#include <type_traits>

#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/training/report/summary.hpp"

namespace lockstep {

double Profile::sum(double ProfileRow::* what) const {
  return std::accumulate(rows.begin(), rows.end(), 0.0,
                         [&](double s, const ProfileRow& row) { return s + row.*what; });
}

std::string to_string(const Profile& profile) {
  using detail::print;
  const double all = profile.microseconds();
  const bool has_kernels =
      std::any_of(profile.rows.begin(), profile.rows.end(),
                  [](const ProfileRow& r) { return !r.calls.empty() && !r.calls[0].name.empty(); });
  using Row = detail::TextTable::Row;
  const auto shown = [&](Row row) {
    row.resize(10);
    if (!has_kernels) row.erase(row.begin() + 2);
    return row;
  };
  detail::TextTable table(
      shown({"Layer", "Pass", "Kernel", "Calls", "us", "Share", "MB", "GB/s", "MFLOP", "GFLOP/s"}),
      has_kernels ? 3 : 2, 9);
  const auto time = [&](Row row, double calls, double us) {
    row.push_back(print(calls == std::floor(calls) ? "%.0f" : "%.2f", calls));
    row.push_back(print("%.1f", us));
    row.push_back(print("%.1f %%", all > 0 ? 100 * us / all : 0));
    return row;
  };
  const auto work = [&](Row& row, double amount, double us) {
    row.push_back(amount > 0 ? print("%.2f", amount / 1e6) : "");
    row.push_back(amount > 0 && us > 0 ? print("%.1f", amount / us / 1e3) : "");
  };
  for (const ProfileRow& r : profile.rows) {
    double calls = 0;
    for (const ProfiledCall& c : r.calls) calls += c.calls;
    const bool one = r.calls.size() == 1;
    auto row = time({r.layer, r.pass, one ? r.calls[0].name : ""}, calls, r.microseconds);
    work(row, r.bytes, r.microseconds);
    work(row, r.flops, r.microseconds);
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
  table.add(shown(std::move(total)));
  std::string result = text(
      {profile.device, ", ", profile.precision, ", ", profile.examples, " examples; the median of ",
       profile.steps, " steps\n", table.str(),
       " A step that is not taken apart: ", print("%.1f us", profile.step_microseconds), "\n"});
  if (profile.event_microseconds > 0)
    result += text({" Two events with nothing between them: ",
                    print("%.2f us", profile.event_microseconds), ", part of each call's time\n"});
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
               {"{\"name\": ", json_string(c.name), ", \"calls\": ", json_number(c.calls),
                ", \"microseconds\": ", json_number(c.microseconds), "}"});
    add_item(
        rows, ",\n  ",
        {"{\"layer\": ", json_string(r.layer), ", \"pass\": ", json_string(r.pass),
         ", \"microseconds\": ", json_number(r.microseconds), ", \"bytes\": ", json_number(r.bytes),
         ", \"flops\": ", json_number(r.flops), ", \"calls\": [", calls, "]}"});
  }
  return text({"{\"device\": ", json_string(profile.device),
               ", \"precision\": ", json_string(profile.precision),
               ", \"examples\": ", profile.examples, ", \"steps\": ", profile.steps,
               ", \"step_microseconds\": ", json_number(profile.step_microseconds),
               ", \"event_microseconds\": ", json_number(profile.event_microseconds),
               ", \"microseconds\": ", json_number(profile.microseconds()), ", \"rows\": [\n  ",
               rows, "\n]}\n"});
}

}  // namespace lockstep

namespace lockstep::detail {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double time_a_step(std::vector<double> came, std::size_t steps, bool mixed) {
  const double all = static_cast<double>(steps), times = static_cast<double>(came.size());
  if (mixed) return std::accumulate(came.begin(), came.end(), 0.0) / all;
  const double middle = median(std::move(came));
  return times == all ? middle : middle * times / all;
}

}  // namespace lockstep::detail
