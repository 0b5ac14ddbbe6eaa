/// \file
/// The same model in each unit that includes it.
#pragma once

#include <vector>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>

struct Line : lockstep::Sequential<lockstep::Input<1>, lockstep::Dense<1>> {};

inline float fitted_slope() {
  namespace ls = lockstep;
  std::vector<float> x, y;
  for (int i = 0; i < 32; ++i) {
    x.push_back(static_cast<float>(i) / 32);
    y.push_back(2 * x.back() + 1);
  }
  ls::Model model{Line{}, ls::OneDevice<ls::Cpu>{}, ls::MeanSquaredError{},
                  ls::SGD{.learning_rate = 0.3}};
  model.fit(ls::tensors(x, ls::shape(1), y, ls::shape(1)) | ls::batch(8),
            {.epochs = 50, .progress = ls::ProgressStyle::none});
  return model.weights("dense/kernel")[0];
}
