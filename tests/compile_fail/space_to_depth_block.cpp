// expect: lockstep::SpaceToDepth: the block size must be at least 1;
#include "lockstep/layers/reshaping/space_to_depth.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 4>, ls::SpaceToDepth<0>> {};
constexpr auto count = Net::parameter_count;
