// expect: lockstep::DepthToSpace: the input does not have height, width and channels;
#include "lockstep/layers/reshaping/depth_to_space.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8>, ls::DepthToSpace<2>> {};
constexpr auto count = Net::parameter_count;
