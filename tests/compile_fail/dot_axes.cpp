// expect: lockstep::Parallel: the output shapes of two branches cannot be merged; Concatenate needs shapes that differ only on its axis, Dot axes of equal extents, the other rules equal shapes
#include "lockstep/layers/activations/relu.hpp"
#include "lockstep/layers/merging/dot.hpp"
#include "lockstep/model/parallel.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::Parallel<ls::Dot<2>, ls::ReLU, ls::Identity>> {};
constexpr auto count = Net::parameter_count;
