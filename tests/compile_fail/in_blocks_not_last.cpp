// expect: lockstep::InBlocks: the layer is not the last one of the network, or is in Recompute; end
// the network with it, outside of Recompute
#include "lockstep/layers/activations/relu.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/in_blocks.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<4>, ls::InBlocks<ls::Dense<4>>, ls::ReLU> {};
constexpr auto count = Net::parameter_count;
