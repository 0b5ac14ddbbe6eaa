// expect: lockstep::Parallel: the output shapes of two branches cannot be merged; Concatenate
// needs shapes that differ only on its axis, Dot axes of equal extents, the other rules equal
// shapes
#include "lockstep/layers/convolution/conv2d.hpp"
#include "lockstep/model/parallel.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::Parallel<ls::Concatenate, ls::Conv2D<4, 1>,
                                                             ls::Identity, ls::Conv2D<4, 3>>> {};
constexpr auto count = Net::parameter_count;
