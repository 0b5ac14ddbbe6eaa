// expect: lockstep::Model: load_checkpoint needs #include <lockstep/checkpoints.hpp>
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<2>, ls::Dense<1>> {};

void load() {
  ls::Model model{Net{}, ls::OneDevice<ls::Reference<float>>{}, ls::MeanSquaredError{}, ls::SGD{}};
  model.load_checkpoint("run");
}
