/// \file
/// Decisions of Keras 3.15.1, recorded by record_callbacks.py.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "golden/recorded.hpp"
#include "lockstep/training/callbacks/early_stopping.hpp"
#include "lockstep/training/callbacks/model_checkpoint.hpp"
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

struct Files {
  lockstep::ModelCheckpoint options;
  std::vector<double> values;
  std::size_t batches;  ///< of an epoch
  int fits;
  std::vector<std::pair<std::string, std::string>> files;  ///< hook and path
  std::string error;
};
inline std::vector<Files> files() {
  const auto document = read("callbacks");
  std::map<std::string, std::vector<double>> curves;
  for (const Json& row : document["curves"].GetArray()) curves[text(row[0])] = numbers(row[1]);
  std::vector<Files> all;
  for (const Json& row : document["files"].GetArray()) {
    lockstep::ModelCheckpoint options;
    for (const auto& [name, value] : row["options"].GetObject()) {
      const std::string option = text(name);
      if (option == "filepath") options.filepath = text(value);
      if (option == "monitor") options.monitor = text(value);
      if (option == "save_best_only") options.save_best_only = value.GetBool();
      if (option == "save_weights_only") options.save_weights_only = value.GetBool();
      if (option == "mode") options.mode = mode_of(row["options"]);
      if (option == "save_freq") options.save_freq = value.GetUint64();
      if (option == "initial_value_threshold") options.initial_value_threshold = value.GetDouble();
    }
    Files& one = all.emplace_back(Files{.options = std::move(options),
                                        .values = curves.at(text(row["curve"])),
                                        .batches = row["batches"].GetUint(),
                                        .fits = row["fits"].GetInt(),
                                        .files = {},
                                        .error = {}});
    for (const Json& file : row["files"].GetArray())
      one.files.emplace_back(text(file[0]), text(file[1]));
    if (!row["error"].IsNull()) one.error = text(row["error"]);
  }
  return all;
}

}  // namespace recorded
