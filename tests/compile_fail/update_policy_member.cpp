// expect: lockstep::Model: the strategy's update_policy lacks a member for its device, or its Replica is not derived
#include "lockstep/training/step/replicated.hpp"

#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;

struct Net : ls::Sequential<ls::Input<1>, ls::Dense<1>> {};
struct Policy {
  template <class D>
  struct Replica {};
};
struct Strategy : ls::Mirrored<ls::Reference<float>> {
  using update_policy = Policy;
};
ls::Model model{Net{}, Strategy{}, ls::MeanSquaredError{}, ls::SGD{}};
