// expect: lockstep::GroupNormalization: groups must be at least 1, or -1
#include "lockstep/layers/normalization/group_normalization.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::GroupNormalization<0>> {};
constexpr auto count = Net::parameter_count;
