// expect: lockstep::Conv2D: filters must be at least 1; write Conv2D<filters, kernel size>
#include "lockstep/layers/convolution/conv2d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::Conv2D<0, 3>> {};
constexpr auto count = Net::parameter_count;
