// expect: lockstep::TimeDistributed: the layer does not accept the shape of a step
#include "lockstep/layers/convolution/conv2d.hpp"
#include "lockstep/layers/recurrent/time_distributed.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<5, 3>, ls::TimeDistributed<ls::Conv2D<4, 3>>> {};
constexpr auto count = Net::parameter_count;
