// expect: lockstep::DepthToSpace: the channels of the input are not a multiple of the pixels of a block;
#include "lockstep/layers/reshaping/depth_to_space.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 6>, ls::DepthToSpace<2>> {};
constexpr auto count = Net::parameter_count;
