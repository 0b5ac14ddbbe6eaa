// expect: lockstep::Conv2DTranspose: an output_padding of 0 does not fit an even kernel size with
// ls::same
#include "lockstep/layers/convolution/conv2d_transpose.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net
    : ls::Sequential<ls::Input<8, 8, 3>,
                     ls::Conv2DTranspose<4, 2, ls::same, ls::strides(3), ls::output_padding(0)>> {};
constexpr auto count = Net::parameter_count;
