// expect: lockstep::TimeDistributed: Flatten and Reshape move no data; write Reshape for the
#include "lockstep/layers/recurrent/time_distributed.hpp"
#include "lockstep/layers/reshaping/flatten.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<5, 3, 2>, ls::TimeDistributed<ls::Flatten>> {};
constexpr auto count = Net::parameter_count;
