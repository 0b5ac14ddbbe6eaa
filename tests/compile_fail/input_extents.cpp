// expect: lockstep::Input: extents must be at least 1 and at most four; the batch is not an extent
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<0>, ls::Dense<8>> {};
constexpr auto count = Net::parameter_count;
