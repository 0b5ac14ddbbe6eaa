// expect: lockstep::SliceAxis: the input does not have this axis;
#include "lockstep/layers/reshaping/slice_axis.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 1>, ls::SliceAxis<3, 0, 1>> {};
constexpr auto count = Net::parameter_count;
