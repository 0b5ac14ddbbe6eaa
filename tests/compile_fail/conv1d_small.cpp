// expect: lockstep::Conv1D: the input has fewer steps than the kernel;
#include "lockstep/layers/convolution/conv1d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<2, 8>, ls::Conv1D<4, 3>> {};
constexpr auto count = Net::parameter_count;
