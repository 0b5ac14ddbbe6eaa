// expect: lockstep::Pooling2D: an option is not supported; it accepts strides and padding
#include "lockstep/layers/pooling/max_pooling2d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::MaxPooling2D<2, ls::dilation(2)>> {};
constexpr auto count = Net::parameter_count;
