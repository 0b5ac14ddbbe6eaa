// expect: lockstep::Predictor: the model has another network or another element type; write
// Predictor<Net, Device> with those of the model
#include "lockstep/layers/dense.hpp"
#include "lockstep/losses/mean_squared_error.hpp"
#include "lockstep/optimizers/sgd.hpp"
#include "lockstep/predictor.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/strategies/one_device.hpp"
#include "lockstep/training/model.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::Dense<1>> {};
struct Other : ls::Sequential<ls::Input<8>, ls::Dense<2>> {};
int main() {
  ls::Model model{Other{}, ls::OneDevice<ls::Reference<float>>{}, ls::MeanSquaredError{},
                  ls::SGD{}};
  const ls::Predictor<Net, ls::Reference<float>> predictor(model);
  return static_cast<int>(predictor.predict(std::vector<float>(8)).count());
}
