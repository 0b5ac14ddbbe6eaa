// expect: lockstep::PReLU: a shared axis is not one of the input's; axis 1 is the first
#include "lockstep/layers/activations/prelu.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::PReLU<ls::shared_axes(1, 4)>> {};
constexpr auto count = Net::parameter_count;
