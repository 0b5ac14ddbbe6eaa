// expect: lockstep::MultiWorkerMirrored: this device has no collective for its replicas; give it a member 'template <class HostGroup> using group', or use Cpu, Cuda or Reference
#include "../archetypes/archetypes.hpp"
#include "lockstep/strategies/multi_worker_mirrored.hpp"

lockstep::MultiWorkerMirrored<archetype::Device> strategy;
