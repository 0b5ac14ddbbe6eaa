// expect: lockstep::Dense: units must be at least 1; write Dense<units>
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::Dense<0>> {};
constexpr auto count = Net::parameter_count;
