// expect: lockstep::PReLU: an option is not supported; it accepts shared_axes,
#include "lockstep/layers/activations/prelu.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::PReLU<ls::strides(2)>> {};
constexpr auto count = Net::parameter_count;
