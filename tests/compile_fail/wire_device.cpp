// expect: lockstep::wire: the replicas of this device exchange whole gradients only; use Cpu or Reference, or leave out ls::wire
#include "../archetypes/archetypes.hpp"
#include "lockstep/wire.hpp"

auto strategy = archetype::Strategy{} | lockstep::wire::bfloat16{};
