/// \file
/// Trains a neuron, with what the package brings and nothing else.
#include <cmath>
#include <cstdio>
#include <vector>

#include <lockstep/core/version.hpp>
#include <lockstep/lockstep.hpp>
#include <lockstep/reference.hpp>

namespace ls = lockstep;

struct Line : ls::Sequential<ls::Input<1>, ls::Dense<1>> {};

int main() {
  std::vector<float> x, y;
  for (int i = 0; i < 32; ++i) {
    x.push_back(static_cast<float>(i) / 32);
    y.push_back(2 * x.back() + 1);
  }
  const auto data = ls::tensors(x, ls::shape(1), y, ls::shape(1)) | ls::batch(8);
  ls::Model model{Line{}, ls::OneDevice<ls::Reference<float>>{}, ls::MeanSquaredError{},
                  ls::SGD{.learning_rate = 0.3}};
  model.fit(data, {.epochs = 200, .progress = ls::ProgressStyle::none});
  const float slope = model.weights("dense/kernel")[0];
  std::printf("lockstep %s: slope %.3f\n", LOCKSTEP_VERSION, static_cast<double>(slope));
  return std::abs(slope - 2) < 0.01f ? 0 : 1;
}
