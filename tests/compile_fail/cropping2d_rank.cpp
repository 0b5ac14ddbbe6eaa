// expect: lockstep::Cropping2D: the input does not have height, width and channels;
#include "lockstep/layers/reshaping/cropping2d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8>, ls::Cropping2D<1>> {};
constexpr auto count = Net::parameter_count;
