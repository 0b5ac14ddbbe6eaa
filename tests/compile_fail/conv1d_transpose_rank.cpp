// expect: lockstep::Conv1DTranspose: the input does not have steps and channels; put Reshape
#include "lockstep/layers/convolution/conv1d_transpose.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::Conv1DTranspose<4, 3>> {};
constexpr auto count = Net::parameter_count;
