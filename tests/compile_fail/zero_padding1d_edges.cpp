// expect: lockstep::ZeroPadding1D: the padding of each side must be at least 0;
#include "lockstep/layers/reshaping/zero_padding1d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 1>, ls::ZeroPadding1D<1, -1>> {};
constexpr auto count = Net::parameter_count;
