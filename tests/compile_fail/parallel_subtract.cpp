// expect: lockstep::Parallel: there are more branches than the rule merges; Subtract merges two,
// write Parallel<ls::Subtract, A, Parallel<ls::Add, B, C>>
#include "lockstep/layers/activations/relu.hpp"
#include "lockstep/layers/merging/subtract.hpp"
#include "lockstep/model/parallel.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>,
                            ls::Parallel<ls::Subtract, ls::ReLU, ls::Identity, ls::Identity>> {};
constexpr auto count = Net::parameter_count;
