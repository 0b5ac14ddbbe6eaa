// expect: lockstep::Pooling1D: the pool size and the strides must be at least 1;
#include "lockstep/layers/pooling/pooling1d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8>, ls::MaxPooling1D<0>> {};
constexpr auto count = Net::parameter_count;
