// expect: lockstep::Conv1DTranspose: the kernel size, strides and dilation must be at least
#include "lockstep/layers/convolution/conv1d_transpose.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 3>, ls::Conv1DTranspose<4, 3, ls::strides(0)>> {};
constexpr auto count = Net::parameter_count;
