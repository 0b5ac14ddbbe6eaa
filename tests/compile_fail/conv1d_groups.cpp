// expect: lockstep::Conv1D: groups must be at least 1 and divide the filters; write
#include "lockstep/layers/convolution/conv1d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 3>, ls::Conv1D<4, 3, ls::groups(3)>> {};
constexpr auto count = Net::parameter_count;
