/// \file
/// A worker's program; only compiled.
#include <vector>

#include <lockstep/cluster.hpp>
#include <lockstep/lockstep.hpp>
#include <lockstep/reference.hpp>

namespace ls = lockstep;

struct Line : ls::Sequential<ls::Input<1>, ls::Dense<1>> {};

int main() {
  const std::vector<float> x{0, 1}, y{1, 3};
  ls::Model model{Line{}, ls::MultiWorkerMirrored<ls::Reference<float>>{}, ls::MeanSquaredError{},
                  ls::SGD{}};
  model.fit(ls::tensors(x, ls::shape(1), y, ls::shape(1)) | ls::batch(2), {.epochs = 1});
}
