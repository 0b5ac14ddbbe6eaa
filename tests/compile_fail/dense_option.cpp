// expect: lockstep::Dense: an option is not supported; it accepts an activation,
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::Dense<4, ls::same>> {};
constexpr auto count = Net::parameter_count;
