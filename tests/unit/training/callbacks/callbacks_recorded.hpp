/// \file
/// Decisions of Keras 3.15.1, recorded by record_callbacks.py.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "golden/recorded.hpp"
#include "lockstep/training/callbacks/early_stopping.hpp"
#include "lockstep/training/callbacks/reduce_lr_on_plateau.hpp"

namespace recorded {

inline lockstep::MonitorMode mode_of(const Json& row) {
  return text(row["mode"]) == "max" ? lockstep::MonitorMode::max : lockstep::MonitorMode::min;
}

struct Stopping {
  lockstep::EarlyStopping options;
  std::vector<double> values;
  int epochs, weights_of_epoch;
};
inline std::vector<Stopping> stopping() {
  std::vector<Stopping> all;
  for (const auto document = read("callbacks"); const Json& row : document["stopping"].GetArray()) {
    lockstep::EarlyStopping options{.monitor = "val_loss",
                                    .min_delta = row["min_delta"].GetDouble(),
                                    .patience = row["patience"].GetInt(),
                                    .mode = mode_of(row),
                                    .restore_best_weights = row["restore_best_weights"].GetBool(),
                                    .start_from_epoch = row["start_from_epoch"].GetInt()};
    if (!row["baseline"].IsNull()) options.baseline = row["baseline"].GetDouble();
    all.push_back({std::move(options), numbers(row["values"]), row["epochs"].GetInt(),
                   row["weights_of_epoch"].GetInt()});
  }
  return all;
}

struct Reducing {
  lockstep::ReduceLROnPlateau options;
  std::vector<double> values, rates;
};
inline std::vector<Reducing> reducing() {
  std::vector<Reducing> all;
  for (const auto document = read("callbacks"); const Json& row : document["reducing"].GetArray())
    all.push_back({{.monitor = "val_loss",
                    .factor = row["factor"].GetDouble(),
                    .patience = row["patience"].GetInt(),
                    .mode = mode_of(row),
                    .min_delta = row["min_delta"].GetDouble(),
                    .cooldown = row["cooldown"].GetInt(),
                    .min_lr = row["min_lr"].GetDouble()},
                   numbers(row["values"]),
                   numbers(row["rates"])});
  return all;
}

struct Csv {
  std::string name, separator;
  bool append;
  std::string before;
  std::vector<std::vector<std::pair<std::string, double>>> epochs;
  std::string file;
};
inline std::vector<Csv> csv() {
  std::vector<Csv> all;
  for (const auto document = read("callbacks"); const Json& row : document["csv"].GetArray()) {
    Csv& one = all.emplace_back(Csv{.name = text(row["name"]),
                                    .separator = text(row["separator"]),
                                    .append = row["append"].GetBool(),
                                    .before = text(row["before"]),
                                    .epochs = {},
                                    .file = text(row["file"])});
    for (const Json& epoch : row["epochs"].GetArray()) one.epochs.push_back(logs(epoch));
  }
  return all;
}

}  // namespace recorded
