// expect: lockstep::Conv1D: one of the options is not for a convolution;
#include "lockstep/layers/conv1d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8>, ls::Conv1D<4, 3, 5>> {};
constexpr auto count = Net::parameter_count;
