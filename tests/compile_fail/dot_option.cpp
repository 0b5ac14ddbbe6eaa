// expect: lockstep::Dot: an option is not supported; it accepts ls::normalize
#include "lockstep/layers/activations/relu.hpp"
#include "lockstep/layers/merging/dot.hpp"
#include "lockstep/model/parallel.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::Parallel<ls::Dot<1, 3>, ls::ReLU, ls::Identity>> {};
constexpr auto count = Net::parameter_count;
