// expect: lockstep::Pooling1D: the input has fewer steps than the pool;
#include "lockstep/layers/pooling/pooling1d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<2, 8>, ls::AveragePooling1D<3>> {};
constexpr auto count = Net::parameter_count;
