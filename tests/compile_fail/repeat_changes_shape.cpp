// expect: lockstep::Repeat: the block changes the shape of its input; put such a block before
// Repeat
#include "lockstep/layers/convolution/conv2d.hpp"
#include "lockstep/model/repeat.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::Repeat<2, ls::Conv2D<3, 3>>> {};
constexpr auto count = Net::parameter_count;
