// expect: lockstep::ParameterServer: servers and workers exchange over the host's memory; use Cpu or Reference
#include "../archetypes/archetypes.hpp"
#include "lockstep/parameter_server.hpp"

lockstep::ParameterServer<archetype::Device> strategy;
