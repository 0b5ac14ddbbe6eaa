/// \file
/// The JSON report of an example program. Invariant: the file is whole or not there.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <lockstep/concepts/callback.hpp>
#include <lockstep/core/version.hpp>
#include <lockstep/training/atomic_file.hpp>

#include "support/strategy.hpp"

namespace support {

/// Watches a run and keeps what the report needs.
class Recorder : public lockstep::Callback {
 public:
  std::vector<double> step_loss, step_accuracy, step_ms;
  nlohmann::json epochs = nlohmann::json::array();

  bool has_begun = false;

  void on_train_begin(const lockstep::Logs&) override { has_begun = true; }
  void on_epoch_begin(int, const lockstep::Logs&) override { epoch_start_ = last_ = Clock::now(); }
  void on_train_batch_end(std::size_t, const lockstep::Logs& logs) override {
    const auto now = Clock::now();
    step_ms.push_back(std::chrono::duration<double, std::milli>(now - last_).count());
    last_ = now;
    step_loss.push_back(logs.step("loss"));
    if (logs.get("accuracy")) step_accuracy.push_back(logs.step("accuracy"));
  }
  void on_epoch_end(int, const lockstep::Logs& logs) override {
    nlohmann::json epoch = nlohmann::json::object();
    for (const auto& [name, value] : logs) epoch[name] = value;
    epoch["seconds"] =
        std::chrono::duration<double>(last_ - epoch_start_).count();  // without validation
    epochs.push_back(std::move(epoch));
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point epoch_start_{}, last_{};
};

/// Median, minimum and 90th percentile without the first 20 steps, or half of them if there are
/// fewer than 40.
inline nlohmann::json step_times(std::vector<double> ms) {
  ms.erase(ms.begin(),
           ms.begin() + static_cast<std::ptrdiff_t>(ms.size() < 40 ? ms.size() / 2 : 20));
  if (ms.empty()) return nullptr;
  std::sort(ms.begin(), ms.end());
  const std::size_t n = ms.size();
  return {{"median", n % 2 == 1 ? ms[n / 2] : (ms[n / 2 - 1] + ms[n / 2]) / 2},
          {"min", ms.front()},
          {"p90", ms[(n - 1) * 9 / 10]}};
}

inline std::size_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
}

/// The report of one run; keys that do not apply are left out.
class Report {
 public:
  explicit Report(const std::string& program)
      : json_{{"program", program}, {"version", LOCKSTEP_VERSION}} {}

  template <class Model>
  void describe(const Model& model, std::size_t batch) {
    using Device = typename Model::device;
    json_["strategy"] = std::remove_cvref_t<decltype(model.strategy())>::name;
    json_["device"] = Device::name;
    json_["precision"] = Device::precision;
    json_["threads"] = model.threads();
    json_["replicas"] = model.replicas();
    json_["parameters"] = Model::parameter_count;
    json_["trainable_parameters"] = Model::trainable_count;
    json_["batch"] = batch;
    json_["seed"] = model.seed();
    json_["first_step"] = model.steps();
    json_["fused"] = Model::fused();
    is_asked_for_ = model.is_chief();
    if constexpr (has_workers<std::remove_cvref_t<decltype(model.strategy())>>) {
      json_["workers"] = model.workers();
      json_["rank"] = model.rank();
    }
  }

  template <class Model>
  void finish(const Model& model, const Recorder& recorder) {
    json_["steps"] = recorder.step_loss.size();
    json_["step_loss"] = recorder.step_loss;
    if (!recorder.step_accuracy.empty()) json_["step_accuracy"] = recorder.step_accuracy;
    json_["epochs"] = recorder.epochs;
    if (auto times = step_times(recorder.step_ms); !times.is_null())
      json_["step_ms"] = std::move(times);
    const auto digests = model.replica_weights_sha256();
    json_["weights_sha256"] = digests.front();
    json_["replica_weights_sha256"] = digests;
    // All replicas of this process: the first has the largest slices.
    json_["peak_bytes"] = {{"planned", model.memory().total() * digests.size()},
                           {"resident", peak_resident_bytes()}};
  }

  void fail(const std::string& error) {
    json_["error"] = error;
    is_asked_for_ = true;
  }

  /// "rank 1: " for what another process than the chief has to say, else nothing.
  std::string speaker() const {
    const auto rank = json_.find("rank");
    return rank == json_.end() || *rank == 0 ? "" : "rank " + rank->dump() + ": ";
  }

  /// The chief writes the report; the others write one only of an error.
  bool is_asked_for() const { return is_asked_for_; }

  /// \throws lockstep::FileError
  void write(const std::string& path) const {
    lockstep::AtomicFile file(path);
    file.write(json_.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    file.commit();
  }

 private:
  nlohmann::json json_;
  bool is_asked_for_ = true;
};

}  // namespace support
