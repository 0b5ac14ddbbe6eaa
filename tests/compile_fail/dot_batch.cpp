// expect: lockstep::Dot: axis 0 is the batch; the axes of an example begin with 1, and -1 is the last
#include "lockstep/layers/activations/relu.hpp"
#include "lockstep/layers/merging/dot.hpp"
#include "lockstep/model/parallel.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::Parallel<ls::Dot<0>, ls::ReLU, ls::Identity>> {};
constexpr auto count = Net::parameter_count;
