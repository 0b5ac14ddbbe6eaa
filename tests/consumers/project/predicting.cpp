/// \file
/// A unit that only predicts: g++ 12 -O3 -Wall called an extent of a shape in it uninitialized.
#include <cstddef>
#include <span>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>

namespace ls = lockstep;

struct Net : ls::Sequential<ls::Input<4>, ls::Dense<8, ls::relu>, ls::Dense<1>> {};
using Model = ls::Model<Net, ls::OneDevice<ls::Cpu>, ls::MeanSquaredError, ls::SGD>;

void predict(Model& model, std::span<const float> x, std::span<float> y);
void predict(Model& model, std::span<const float> x, std::span<float> y) {
  const auto outputs = model.predict(x, 1);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = outputs.row(i)[0];
}

int main() {
  Model model{Net{}, ls::OneDevice<ls::Cpu>{}, {}, {}};
  const float x[4] = {};
  float y[1];
  predict(model, x, y);
  return y[0] == 0 ? 0 : 1;  // a new bias is 0
}
