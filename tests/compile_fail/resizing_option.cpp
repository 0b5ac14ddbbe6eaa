// expect: lockstep::Resizing: an option is not supported; it accepts ls::bilinear or
#include "lockstep/layers/preprocessing/resizing.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::Resizing<4, 4, ls::strides(2)>> {};
constexpr auto count = Net::parameter_count;
