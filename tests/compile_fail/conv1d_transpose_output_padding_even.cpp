// expect: lockstep::Conv1DTranspose: an output_padding of 0 does not fit an even kernel size
#include "lockstep/layers/convolution/conv1d_transpose.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net
    : ls::Sequential<ls::Input<8, 3>,
                     ls::Conv1DTranspose<4, 4, ls::strides(2), ls::same, ls::output_padding(0)>> {};
constexpr auto count = Net::parameter_count;
