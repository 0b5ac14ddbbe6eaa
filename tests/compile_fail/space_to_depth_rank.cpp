// expect: lockstep::SpaceToDepth: the input does not have height, width and channels;
#include "lockstep/layers/reshaping/space_to_depth.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8>, ls::SpaceToDepth<2>> {};
constexpr auto count = Net::parameter_count;
