// expect: lockstep::LeakyReLU: the slope must be above 0; use ReLU for a slope of 0
#include "lockstep/layers/activations/leaky_relu.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::LeakyReLU<0>> {};
constexpr auto count = Net::parameter_count;
