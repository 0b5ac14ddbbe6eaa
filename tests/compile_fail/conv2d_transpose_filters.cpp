// expect: lockstep::Conv2DTranspose: filters must be at least 1;
#include "lockstep/layers/convolution/conv2d_transpose.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::Conv2DTranspose<0, 3>> {};
constexpr auto count = Net::parameter_count;
