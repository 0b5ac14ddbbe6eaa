// expect: lockstep::Parallel: there must be at least two branches;
#include "lockstep/layers/convolution/conv2d.hpp"
#include "lockstep/model/parallel.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::Parallel<ls::Add, ls::Conv2D<4, 3>>> {};
constexpr auto count = Net::parameter_count;
