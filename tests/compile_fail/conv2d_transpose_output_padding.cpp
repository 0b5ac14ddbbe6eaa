// expect: lockstep::Conv2DTranspose: output_padding must be at least 0 and less than the strides
#include "lockstep/layers/convolution/conv2d_transpose.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>,
                            ls::Conv2DTranspose<4, 3, ls::strides(2), ls::output_padding(2)>> {};
constexpr auto count = Net::parameter_count;
