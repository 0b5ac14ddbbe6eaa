// expect: lockstep::Pooling1D: an option does not apply to pooling;
#include "lockstep/layers/pooling1d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8>, ls::MaxPooling1D<2, 5>> {};
constexpr auto count = Net::parameter_count;
