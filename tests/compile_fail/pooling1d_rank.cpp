// expect: lockstep::Pooling1D: the input does not have steps and channels;
#include "lockstep/layers/pooling/pooling1d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::MaxPooling1D<>> {};
constexpr auto count = Net::parameter_count;
