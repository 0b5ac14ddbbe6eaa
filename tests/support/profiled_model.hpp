/// \file
/// A model that is profiled between its steps, compared with one that is not, on any device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/lockstep.hpp"
#include "lockstep/training/report/profile.hpp"
#include "support/run_kernel.hpp"

namespace testing {

/// A network with weights, running statistics and random layers.
struct ProfiledNet : lockstep::Sequential<lockstep::Input<6, 6, 1>, lockstep::Conv2D<4, 3>,
                                          lockstep::BatchNormalization<>, lockstep::ReLU,
                                          lockstep::Dropout<lockstep::rate(0.25f)>,
                                          lockstep::Flatten, lockstep::Dense<3>> {};

inline std::vector<std::int32_t> profiled_labels(std::size_t count) {
  std::vector<std::int32_t> y(count);
  for (std::size_t i = 0; i < count; ++i) y[i] = static_cast<std::int32_t>(i % 3);
  return y;
}

/// All observable state after training steps before and after `between(model)`.
struct Trained {
  std::vector<double> values;
  std::vector<std::uint64_t> counts;
  bool operator==(const Trained&) const = default;
};

template <class S, class O, class Between>
Trained train_with(const S& strategy, const O& optimizer, const Between& between) {
  using namespace lockstep;
  using T = typename S::device::real;
  const auto x = as<T>(normal_values(20 * 36, 3));
  const auto y = profiled_labels(20);
  Model model{ProfiledNet{}, Seed{3},
              strategy,      SparseCategoricalCrossentropy{.from_logits = true},
              optimizer,     Accuracy{}};
  Trained seen;
  const auto see = [&] {
    for (const ParameterInfo& p : model.parameters()) {
      for (const T w : model.weights(p.name)) seen.values.push_back(static_cast<double>(w));
      if (p.trainable)
        for (const T g : model.gradients(p.name)) seen.values.push_back(static_cast<double>(g));
    }
    for (const double n : model.template metric_state<Accuracy>()) seen.values.push_back(n);
    seen.values.push_back(model.learning_rate());
    seen.values.push_back(model.loss_scale());
    seen.counts.insert(seen.counts.end(), {model.steps(), model.passes(), model.updates()});
  };
  const auto data = tensors(x, shape(6, 6, 1), y) | shuffle(20) | batch(5);
  model.fit(data, {.epochs = 2, .progress = ProgressStyle::none});
  between(model, x, y, data);
  see();
  model.train_on_batch(x, y);
  model.fit(data, {.epochs = 1, .progress = ProgressStyle::none});
  see();
  return seen;
}

/// Compares training with and without a profile, of a batch in memory and of a pipeline.
template <class S, class O>
bool profile_leaves_all_as_it_was(const S& strategy, const O& optimizer) {
  const auto plain = train_with(strategy, optimizer, [](auto&...) {});
  const auto profiled = train_with(strategy, optimizer,
                                   [](auto& model, const auto& x, const auto& y, const auto& data) {
                                     model.profile(x, y, {}, {.steps = 2, .warm_up = 1});
                                     model.profile(data, {.steps = 5, .warm_up = 0});
                                   });
  return plain == profiled;
}

inline const lockstep::ProfileRow* find_row(const lockstep::Profile& profile,
                                            const std::string& layer, const std::string& pass) {
  for (const lockstep::ProfileRow& row : profile.rows)
    if (row.layer == layer && row.pass == pass) return &row;
  return nullptr;
}
inline std::string printed(const lockstep::Profile& profile) {
  std::ostringstream out;
  out << profile;
  return out.str();
}

}  // namespace testing
