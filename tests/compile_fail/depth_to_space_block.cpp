// expect: lockstep::DepthToSpace: the block size must be at least 1;
#include "lockstep/layers/reshaping/depth_to_space.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 4>, ls::DepthToSpace<0>> {};
constexpr auto count = Net::parameter_count;
