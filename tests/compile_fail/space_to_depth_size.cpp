// expect: lockstep::SpaceToDepth: height and width of the input are not multiples of the block size;
#include "lockstep/layers/reshaping/space_to_depth.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 7, 6>, ls::SpaceToDepth<2>> {};
constexpr auto count = Net::parameter_count;
