// expect: lockstep::Conv1D: the kernel size, strides and dilation must be at least 1;
#include "lockstep/layers/convolution/conv1d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8>, ls::Conv1D<4, 3, ls::strides(0)>> {};
constexpr auto count = Net::parameter_count;
