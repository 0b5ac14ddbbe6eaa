// expect: lockstep::SliceAxis: axis 0 is the batch, which cannot be cut;
#include "lockstep/layers/reshaping/slice_axis.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 1>, ls::SliceAxis<0, 1, 2>> {};
constexpr auto count = Net::parameter_count;
