// expect: lockstep::MultiWorkerMirrored: replicas exchange in the memory of the host, and this device has its own; use Cpu or Reference
#include "../archetypes/archetypes.hpp"
#include "lockstep/strategies/multi_worker_mirrored.hpp"

lockstep::MultiWorkerMirrored<archetype::Device> strategy;
