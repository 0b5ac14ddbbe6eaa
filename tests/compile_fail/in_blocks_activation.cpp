// expect: lockstep::InBlocks: the layer is not Dense without an activation, nor TiedDense; leave the
// activation to the loss, with from_logits = true
#include "lockstep/layers/activations/softmax.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/in_blocks.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<4>, ls::InBlocks<ls::Dense<4, ls::softmax>>> {};
constexpr auto count = Net::parameter_count;
