// expect: lockstep::Mirrored: replicas on this device have no group; give the device a member 'template <class HostGroup> using group', or use Cpu, Cuda or Reference
#include "../archetypes/archetypes.hpp"
#include "lockstep/strategies/mirrored.hpp"

lockstep::Mirrored<archetype::Device> strategy;
