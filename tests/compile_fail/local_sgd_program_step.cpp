// expect: lockstep::Model: under ls::LocalSgd and ls::DiLoCo only `fit` with the library's step knows where a round ends; leave out steps of the program's own, or the policy
#include "lockstep/local_sgd.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;

struct Net : ls::Sequential<ls::Input<1>, ls::Dense<1>> {};
void train(const ls::Batch<float, float>& batch) {
  ls::Model model{Net{}, ls::Mirrored<ls::Reference<float>>{} | ls::LocalSgd{},
                  ls::MeanSquaredError{}, ls::SGD{}};
  model.train_step(batch);
}
