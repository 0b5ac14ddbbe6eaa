// A program that writes event files for TensorBoard.
#include <lockstep/lockstep.hpp>
#include <lockstep/reference.hpp>
#include <lockstep/tensorboard.hpp>

#include <cstdio>
#include <string>
#include <vector>

namespace ls = lockstep;

struct Line : ls::Sequential<ls::Input<1>, ls::Dense<1>> {};

int main(int, char** argv) {
  ls::Model model{Line{}, ls::OneDevice<ls::Reference<float>>{}, ls::MeanSquaredError{},
                  ls::SGD{.learning_rate = 0.1}};
  const auto data =
      ls::tensors(std::vector<float>{1, 2}, ls::shape(1), std::vector<float>{2, 4}, ls::shape(1)) |
      ls::batch(2);
  model.fit(data, {.epochs = 2,
                   .callbacks = {ls::TensorBoard{.log_dir = argv[0] + std::string(".logs"),
                                                 .histogram_freq = 1,
                                                 .update_freq = "batch",
                                                 .hparams = {{"units", 1}, {"optimizer", "sgd"}}}},
                   .progress = ls::ProgressStyle::none});
  std::puts("writes events: yes");
}
