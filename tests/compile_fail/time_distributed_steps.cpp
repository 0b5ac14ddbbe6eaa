// expect: lockstep::TimeDistributed: the input has no steps
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/recurrent/time_distributed.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<5>, ls::TimeDistributed<ls::Dense<4>>> {};
constexpr auto count = Net::parameter_count;
