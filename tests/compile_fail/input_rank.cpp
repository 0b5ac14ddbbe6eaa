// expect: lockstep::Input: extents must be at least 1 and at most four; the batch is not an extent
#include "lockstep/layers/reshaping/flatten.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<64, 2, 28, 28, 1>, ls::Flatten> {};
constexpr auto count = Net::parameter_count;
