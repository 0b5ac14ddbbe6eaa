// expect: lockstep::GroupNormalization: the number of groups does not divide the channels
#include "lockstep/layers/normalization/group_normalization.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::GroupNormalization<3>> {};
constexpr auto count = Net::parameter_count;
