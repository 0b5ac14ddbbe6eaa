// expect: lockstep::Conv1D: an option is not supported;
#include "lockstep/layers/convolution/conv1d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8>, ls::Conv1D<4, 3, 5>> {};
constexpr auto count = Net::parameter_count;
