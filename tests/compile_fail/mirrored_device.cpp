// expect: lockstep::Mirrored: this device has no collective for its replicas; give it a member 'template <class HostGroup> using group', or use Cpu, Cuda or Reference
#include "../archetypes/archetypes.hpp"
#include "lockstep/strategies/mirrored.hpp"

lockstep::Mirrored<archetype::Device> strategy;
