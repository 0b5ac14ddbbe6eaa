// expect: lockstep::Sharded: the replicas of this device cannot exchange ranges of weights; use Cpu or Reference, or leave out ls::Sharded
#include "../archetypes/archetypes.hpp"
#include "lockstep/sharded.hpp"

auto strategy = archetype::Strategy{} | lockstep::Sharded{};
