// expect: lockstep::SliceAxis: the range is empty or is not within the axis;
#include "lockstep/layers/reshaping/slice_axis.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 1>, ls::SliceAxis<1, 5, 9>> {};
constexpr auto count = Net::parameter_count;
