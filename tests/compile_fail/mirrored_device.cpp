// expect: lockstep::Mirrored: replicas exchange in the memory of the host, and this device has its own; use Cpu or Reference
#include "../archetypes/archetypes.hpp"
#include "lockstep/strategies/mirrored.hpp"

lockstep::Mirrored<archetype::Device> strategy;
