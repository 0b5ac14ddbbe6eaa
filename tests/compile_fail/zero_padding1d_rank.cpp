// expect: lockstep::ZeroPadding1D: the input does not have steps and channels;
#include "lockstep/layers/reshaping/zero_padding1d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 1>, ls::ZeroPadding1D<>> {};
constexpr auto count = Net::parameter_count;
