// expect: lockstep::Parallel: the first argument is not a rule that merges branches; write
// Parallel<ls::Add, ...> or Parallel<ls::Concatenate, ...>
#include "lockstep/layers/convolution/conv2d.hpp"
#include "lockstep/model/parallel.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::Parallel<ls::Conv2D<4, 3>, ls::Identity>> {};
constexpr auto count = Net::parameter_count;
