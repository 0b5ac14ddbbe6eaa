// expect: lockstep: strategy | policy: the strategy has its own update policy, as ParameterServer and the result of another | do; leave out the second one
#include "lockstep/parameter_server.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/sharded.hpp"

auto strategy = lockstep::ParameterServer<lockstep::Reference<float>>{} | lockstep::Sharded{};
