/// \file
/// The report of lockstep-doctor as text: hosts, connections, findings, verdict.
#pragma once

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/core/format_numbers.hpp>

#include "doctor_diagnose.hpp"
#include "doctor_facts.hpp"

namespace lockstep_doctor {

/// Columns as wide as their longest cell, two spaces apart.
class Table {
 public:
  explicit Table(std::vector<std::string> head) { rows_.push_back(std::move(head)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  std::string text() const {
    std::vector<std::size_t> widths(rows_[0].size());
    for (const auto& row : rows_)
      for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    std::string result;
    for (const auto& row : rows_) {
      std::string line;
      for (std::size_t i = 0; i < row.size(); ++i)
        line += fmt::format("{:<{}}  ", row[i], widths[i]);
      result += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
    }
    return result;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

inline std::string size_text(std::int64_t bytes) {
  return bytes < 0 ? "?" : lockstep::detail::format_bytes(static_cast<std::uint64_t>(bytes));
}

/// "chief", "+0.002 s", or "?" if the worker has no measured connection to the chief.
inline std::string clock_text(const JobFacts& job, std::size_t rank) {
  if (rank == 0) return "chief";
  for (const PairFacts& pair : job.pairs)
    if (pair.a == 0 && pair.b == rank && pair.is_measured) {
      // Within the error of the measurement, the clocks are equal.
      const double shown = std::abs(pair.clock) <= pair.clock_error ? 0 : pair.clock;
      return fmt::format("{:+.3f} s", shown);
    }
  return "?";
}

inline std::string host_table(const JobFacts& job) {
  Table table({"rank", "host", "address", "lockstep", "cores", "features", "memory", "disk",
               "files", "clock", "secret", "GPUs", "data"});
  const auto or_dash = [](const std::string& text) {
    return text.empty() ? std::string("-") : text;
  };
  for (std::size_t rank = 0; rank < job.hosts.size(); ++rank) {
    const HostFacts& host = job.hosts[rank];
    const std::string cores = host.cores == host.machine_cores
                                  ? fmt::format("{}", host.cores)
                                  : fmt::format("{} of {}", host.cores, host.machine_cores);
    const std::string data = host.data.substr(host.data.rfind(' ') + 1);
    table.add({fmt::format("{}", rank), host.host, or_dash(host.address), host.version, cores,
               or_dash(host.features), size_text(host.memory), size_text(host.disk),
               fmt::format("{}", host.files), clock_text(job, rank), host.secret,
               or_dash(host.gpus), or_dash(data)});
  }
  return table.text();
}

/// All pairs, or the slowest ones of a large job.
inline std::string pair_table(const JobFacts& job) {
  constexpr std::size_t most = 28;  // all of eight workers
  std::vector<PairFacts> pairs = job.pairs;
  std::string rest;
  if (pairs.size() > most) {
    rest = fmt::format("the {} slowest of {} connections\n", most, pairs.size());
    std::stable_sort(pairs.begin(), pairs.end(), [](const PairFacts& a, const PairFacts& b) {
      return std::min(a.to_a, a.to_b) < std::min(b.to_a, b.to_b);
    });
    pairs.resize(most);
  }
  Table table({"ranks", "round trip", "forth", "back"});
  for (const PairFacts& pair : pairs) {
    const std::string ranks = fmt::format("{} - {}", pair.a, pair.b);
    if (pair.is_measured)
      table.add({ranks, time_text(pair.round_trip), bits_text(pair.to_b), bits_text(pair.to_a)});
    else
      table.add({ranks, "none", "", ""});
  }
  return table.text() + rest;
}

inline std::string finding_text(const Finding& finding) {
  return fmt::format("{}: {}: {}\n  remedy: {}\n", finding.is_problem ? "problem" : "warning",
                     finding.where, finding.what, finding.remedy);
}

/// The last line of a report.
inline std::string verdict_text(std::size_t problems, std::size_t warnings) {
  const auto count = [](std::size_t n, std::string_view noun) {
    return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
  };
  std::string text =
      problems == 0 ? "verdict: ready to train" : "verdict: " + count(problems, "problem");
  if (warnings > 0) text += ", " + count(warnings, "warning");
  return text + '\n';
}

inline std::size_t count_problems(const std::vector<Finding>& findings) {
  return static_cast<std::size_t>(std::count_if(
      findings.begin(), findings.end(), [](const Finding& finding) { return finding.is_problem; }));
}

/// The whole report.
inline std::string report(const JobFacts& job, const std::vector<Finding>& findings) {
  std::string text = host_table(job);
  if (!job.pairs.empty()) text += "\n" + pair_table(job);
  text += '\n';
  for (const Finding& finding : findings) text += finding_text(finding);
  const std::size_t problems = count_problems(findings);
  return text + verdict_text(problems, findings.size() - problems);
}

}  // namespace lockstep_doctor
