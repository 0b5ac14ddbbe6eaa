// expect: lockstep::Dense: the input is a scalar; put Reshape<ls::shape(1)> before Dense
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<>, ls::Dense<4>> {};
constexpr auto count = Net::parameter_count;
