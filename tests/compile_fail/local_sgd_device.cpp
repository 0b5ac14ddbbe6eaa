// expect: lockstep::LocalSgd, lockstep::DiLoCo: the end of a round reads the weights on the host, which this device does not use; use Cpu or Reference, or leave out the policy
#include "../archetypes/archetypes.hpp"
#include "lockstep/local_sgd.hpp"

auto strategy = archetype::Strategy{} | lockstep::DiLoCo{};
