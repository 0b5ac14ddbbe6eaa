/// \file
/// The calls of a user's program, compiled with the flags that users' builds have.
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>

namespace ls = lockstep;

struct Net : ls::Sequential<ls::Input<8, 8, 1>, ls::Conv2D<4, 3, ls::relu>, ls::MaxPooling2D<>,
                            ls::Flatten, ls::Dense<8>, ls::BatchNormalization<>, ls::ReLU,
                            ls::Dropout<ls::rate(0.1f)>, ls::Dense<1>> {};
using Model = ls::Model<Net, ls::OneDevice<ls::Cpu>, ls::MeanSquaredError, ls::Adam,
                        ls::RootMeanSquaredError>;

int main() {
  std::vector<float> x(64 * 64), y(64);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 101) / 101;
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = 1 + x[64 * i];
  const auto data = ls::tensors(x, ls::shape(8, 8, 1), y, ls::shape(1));
  Model model{Net{}, ls::OneDevice<ls::Cpu>{.on = {.threads = 1}}, {}, {.learning_rate = 0.01}, {}};
  const auto history = model.fit(
      data | ls::cache | ls::shuffle(32) | ls::batch(16) | ls::prefetch(2), data | ls::batch(10),
      {.epochs = 4,
       .callbacks = {ls::EarlyStopping{.patience = 4, .restore_best_weights = true}},
       .progress = ls::ProgressStyle::none});
  const auto logs = model.evaluate(data | ls::batch(7), {.progress = ls::ProgressStyle::none});
  model.train_on_batch(std::span(x).first(128), std::span(y).first(2));
  const auto predictions = model.predict(x);
  const bool finite = std::isfinite(logs["loss"]) && std::isfinite(predictions.row(0)[0]);
  const auto losses = history["loss"];
  std::printf("trains: %s\n", finite && losses.back() < losses.front() ? "yes" : "no");
}
