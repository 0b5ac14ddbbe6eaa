/// \file
/// Writes the JSON report of a program. Invariant: the file is complete or absent.
/// Included only by program.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <lockstep/core/version.hpp>
#include <lockstep/files/atomic_file.hpp>

#include "support/report.hpp"

namespace support {

/// The values of steps in ascending order, without the first 20, or without the first half if there are
/// fewer than 40.
inline std::vector<double> sorted_steps(std::vector<double> values) {
  values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(
                                                    values.size() < 40 ? values.size() / 2 : 20));
  std::sort(values.begin(), values.end());
  return values;
}
inline double median(const std::vector<double>& sorted) {
  const std::size_t n = sorted.size();
  return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/// Median, minimum and 90th percentile.
inline nlohmann::json step_times(const std::vector<double>& all) {
  const std::vector<double> ms = sorted_steps(all);
  if (ms.empty()) return nullptr;
  const std::size_t n = ms.size();
  return {{"median", median(ms)}, {"min", ms.front()}, {"p90", ms[(n - 1) * 9 / 10]}};
}

/// The report as JSON, without keys that do not apply.
inline nlohmann::json to_json(const Report& report) {
  nlohmann::json json{{"program", report.program}, {"version", LOCKSTEP_VERSION}};
  if (const auto& made = report.made) {
    json["strategy"] = made->strategy;
    json["device"] = made->device;
    json["precision"] = made->precision;
    if (!made->update.empty()) json["update"] = made->update;
    if (!made->wire.empty()) json["wire"] = made->wire;
    json["optimizer_bytes"] = made->optimizer_bytes;
    json["threads"] = made->threads;
    json["replicas"] = made->replicas;
    json["parameters"] = made->parameters;
    json["trainable_parameters"] = made->trainable_parameters;
    json["batch"] = made->batch;
    json["seed"] = made->seed;
    json["first_step"] = made->first_step;
    json["fused"] = made->fused;
    json["memory_plan"] = nlohmann::json::parse(lockstep::to_json(made->memory_plan));
    if (made->has_workers) {
      json["workers"] = made->workers;
      json["rank"] = made->rank;
    }
  }
  if (const auto& run = report.run) {
    json["steps"] = run->steps;
    json["step_loss"] = run->step_loss;
    if (!run->step_accuracy.empty()) json["step_accuracy"] = run->step_accuracy;
    json["epochs"] = nlohmann::json::array();
    for (const auto& logs : run->epochs) {
      auto& epoch = json["epochs"].emplace_back(nlohmann::json::object());
      for (const auto& [name, value] : logs) epoch[name] = value;
    }
    if (auto times = step_times(run->step_ms); !times.is_null()) {
      if (report.made && report.tokens_per_example > 0)
        json["tokens_per_second"] =
            static_cast<double>(report.made->batch * report.tokens_per_example) * 1000 /
            times["median"].get<double>();
      json["step_ms"] = std::move(times);
    }
    if (const auto bytes = sorted_steps(run->step_bytes);
        report.made && report.made->has_workers && !bytes.empty())
      json["wire_bytes"] = static_cast<std::uint64_t>(median(bytes));
    if (!run->replica_digests.empty()) {  // else this worker has left its job
      json["weights_sha256"] = run->replica_digests.front();
      json["replica_weights_sha256"] = run->replica_digests;
    }
    if (report.made && report.made->has_phases) {
      if (report.made->backup_workers > 0)
        json["copies_dropped"] = run->updates.copies_dropped;
      else
        json["stale_max"] = run->updates.most_stale;
      json["examples_once"] = run->updates.each_once;
    }
    json["peak_bytes"] = {{"planned", run->planned_bytes}, {"resident", run->resident_bytes}};
  }
  if (report.generated) json["generated"] = *report.generated;
  if (report.error) json["error"] = *report.error;
  return json;
}

/// As JSON has only valid UTF-8, other bytes become U+FFFD.
inline std::string to_text(const nlohmann::json& json, int indent = -1) {
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

/// \throws lockstep::FileError
inline void write(const Report& report, const std::string& path) {
  lockstep::AtomicFile file(path);
  file.write(to_text(to_json(report), 2));
  file.commit();
}

}  // namespace support
