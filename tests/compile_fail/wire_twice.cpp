// expect: lockstep: strategy | policy: the strategy has its own update policy, as ParameterServer and the result of another | do; leave out the second one
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/sharded.hpp"
#include "lockstep/wire.hpp"

namespace ls = lockstep;

auto strategy = ls::Mirrored<ls::Reference<float>>{} | ls::Sharded{} | ls::wire::PowerSgd{};
