// expect: lockstep::Conv1DTranspose: an option is not supported; it accepts padding, strides,
#include "lockstep/layers/convolution/conv1d_transpose.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 3>, ls::Conv1DTranspose<4, 3, ls::groups(1)>> {};
constexpr auto count = Net::parameter_count;
