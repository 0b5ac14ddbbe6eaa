// expect: lockstep::GroupNormalization: an option is not supported;
#include "lockstep/layers/normalization/group_normalization.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::GroupNormalization<4, ls::same>> {};
constexpr auto count = Net::parameter_count;
