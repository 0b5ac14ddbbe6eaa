// expect: lockstep::Model: a layer exchanges data with other replicas within each step, but under ls::LocalSgd and ls::DiLoCo they make steps alone; leave out ls::synchronized, or the policy
#include "lockstep/local_sgd.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;

struct Net : ls::Sequential<ls::Input<2>, ls::BatchNormalization<ls::synchronized>, ls::Dense<1>> {
};
ls::Model model{Net{}, ls::Mirrored<ls::Reference<float>>{} | ls::DiLoCo{}, ls::MeanSquaredError{},
                ls::SGD{}};
