// expect: lockstep::Dense: the input has height and width; put Flatten or
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::Dense<4>> {};
constexpr auto count = Net::parameter_count;
