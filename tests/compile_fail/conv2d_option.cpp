// expect: lockstep::Conv2D: an option is not supported; it accepts padding,
#include "lockstep/layers/convolution/conv2d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::Conv2D<4, 3, ls::same, 7>> {};
constexpr auto count = Net::parameter_count;
