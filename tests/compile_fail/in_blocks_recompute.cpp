// expect: lockstep::InBlocks: the layer is not the last one of the network, or is in Recompute; end
// the network with it, outside of Recompute
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/in_blocks.hpp"
#include "lockstep/model/recompute.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<4>, ls::Recompute<ls::InBlocks<ls::Dense<4>>>> {};
constexpr auto count = Net::parameter_count;
