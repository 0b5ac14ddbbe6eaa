/// \file
/// Runs of Keras 3.15.1 with callbacks, recorded by record_fit_callbacks.py, and their data and model.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "golden/recorded.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"

namespace recorded {

namespace ls = lockstep;

/// y = w x.
struct Slope : ls::Sequential<ls::Input<1>, ls::Dense<1, ls::no_bias>> {};

/// The script's model.
inline auto slope(const ls::UpdateOptions& with = {}) {
  ls::Model model{Slope{}, ls::OneDevice<ls::Reference<double>>{}, ls::MeanSquaredError{},
                  ls::SGD{.learning_rate = 0.1, .with = with}};
  model.set_weights("dense/kernel", std::vector{0.5});
  return model;
}

inline std::vector<double> slope_xs(std::size_t examples) {
  std::vector<double> x;
  for (std::size_t i = 0; i < examples; ++i) x.push_back(static_cast<double>(i) / 4 - 1);
  return x;
}
inline std::vector<double> slope_ys(std::size_t examples) {
  std::vector<double> y;
  for (const double x : slope_xs(examples)) y.push_back(3 * x + std::sin(10 * x));
  return y;
}
/// The script's data.
inline auto slope_data(std::size_t examples) {
  return ls::tensors(slope_xs(examples), ls::shape(1), slope_ys(examples), ls::shape(1));
}

struct Averages {
  std::optional<bool> swap_on_epoch;  ///< nullopt: without the callback
  std::uint64_t overwrite;
  bool stops;                                         ///< at the end of epoch 1
  std::vector<std::pair<std::string, double>> hooks;  ///< the kernel at each hook
  std::vector<double> after;                          ///< after fit, a step, evaluate and predict
};
inline std::vector<Averages> averages() {
  std::vector<Averages> all;
  for (const auto document = read("fit_callbacks");
       const Json& row : document["averages"].GetArray()) {
    Averages& one = all.emplace_back(Averages{.swap_on_epoch = {},
                                              .overwrite = row["overwrite"].GetUint64(),
                                              .stops = row["stops"].GetBool(),
                                              .hooks = logs(row["hooks"]),
                                              .after = numbers(row["after"])});
    if (!row["swap_on_epoch"].IsNull()) one.swap_on_epoch = row["swap_on_epoch"].GetBool();
  }
  return all;
}

}  // namespace recorded
