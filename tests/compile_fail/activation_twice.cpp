// expect: lockstep::activation: a layer has at most one activation;
#include "lockstep/layers/layers.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::Dense<4, ls::relu, ls::tanh>> {};
constexpr auto count = Net::parameter_count;
