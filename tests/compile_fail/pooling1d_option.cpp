// expect: lockstep::Pooling1D: an option is not supported;
#include "lockstep/layers/pooling/pooling1d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8>, ls::MaxPooling1D<2, 5>> {};
constexpr auto count = Net::parameter_count;
