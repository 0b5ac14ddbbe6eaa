/// \file
/// Training runs with NaN that a ReLU may hide from the loss: one NaN in the data, or all weights
/// of a layer.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/lockstep.hpp"

namespace hidden_nan {

namespace ls = lockstep;

struct Net : ls::Sequential<ls::Input<6, 6, 4>, ls::Conv2D<8, 3, ls::relu>, ls::Flatten,
                            ls::Dense<8, ls::relu>, ls::Dense<3>> {};
/// First layers that some devices fuse with their pooling.
struct Pooled : ls::Sequential<ls::Input<10, 10, 1>, ls::Conv2D<16, 3, ls::relu>,
                               ls::MaxPooling2D<>, ls::Flatten, ls::Dense<3>> {};
struct Table : ls::Sequential<ls::Input<4>, ls::Dense<8, ls::relu>, ls::Dense<3>> {};

struct Ended {
  std::uint64_t steps = 0;
  std::string message;  // errors
  std::vector<std::string> warnings;
  double loss = 0, evaluated = 0;  // of the last epoch; of an example without NaN
};

/// 24 examples in batches of four, three epochs. `nan_at`: the number of x that is NaN. The weights
/// of `layer`, unless empty, are set to NaN before training.
template <class Net, class Strategy>
Ended train(const Strategy& strategy, std::size_t nan_at, const std::string& layer = {},
            bool terminates = true) {
  using T = typename Strategy::device::real;
  constexpr T nan = std::numeric_limits<T>::quiet_NaN();
  constexpr std::size_t count = 24;
  Ended ended;
  ls::Model model{Net{}, strategy, ls::SparseCategoricalCrossentropy{.from_logits = true},
                  ls::SGD{.learning_rate = 0.01}};
  ls::Philox g(3);
  std::vector<T> x(count * Net::input_shape.size());
  for (T& v : x) v = static_cast<T>(g.normal());
  if (nan_at < x.size()) x[nan_at] = nan;
  std::vector<std::int32_t> y(count);
  for (std::int32_t& v : y) v = static_cast<std::int32_t>(g.below(3));
  for (const auto& p : model.parameters())
    if (!layer.empty() && p.name.starts_with(layer))
      model.set_weights(p.name, std::vector<T>(p.size(), nan));
  const auto before = ls::set_log([&](ls::LogLevel level, std::string_view text) {
    if (level == ls::LogLevel::error) ended.message += text;
    if (level == ls::LogLevel::warning) ended.warnings.emplace_back(text);
  });
  const auto data = ls::tensors(x, Net::input_shape, y) | ls::batch(4);
  ls::FitOptions options{.epochs = 3, .progress = ls::ProgressStyle::none};
  if (terminates) options.callbacks = {ls::TerminateOnNaN{}};
  const auto history = model.fit(data, options);
  ended.steps = model.steps();
  if (!terminates) {
    ended.loss = history["loss"].back();
    ended.evaluated = model.evaluate(data, {.steps = 1})["loss"];
  }
  ls::set_log(before);
  return ended;
}
inline constexpr std::size_t nowhere = static_cast<std::size_t>(-1);

/// The steps after which runs end that have NaN in the fourth batch, or in the weights of the
/// first, second or last layer; and the log of the last but one.
template <class Strategy>
std::vector<std::uint64_t> steps(const Strategy& strategy) {
  return {train<Table>(strategy, 13 * 4 + 2).steps,
          train<Pooled>(strategy, 13 * 100 + 55).steps,
          train<Net>(strategy, 13 * 144 + 70).steps,
          train<Table>(strategy, nowhere).steps,
          train<Table>(strategy, nowhere, "dense/").steps,
          train<Pooled>(strategy, nowhere, "conv2d/").steps,
          train<Net>(strategy, nowhere, "conv2d/").steps,
          train<Net>(strategy, nowhere, "dense/").steps,
          train<Net>(strategy, nowhere, "dense_1/").steps};
}
inline const std::vector<std::uint64_t> expected_steps{4, 4, 4, 18, 1, 1, 1, 1, 1};

}  // namespace hidden_nan
