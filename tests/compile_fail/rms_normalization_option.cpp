// expect: lockstep::RMSNormalization: an option is not supported;
#include "lockstep/layers/normalization/rms_normalization.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::RMSNormalization<ls::center(false)>> {};
constexpr auto count = Net::parameter_count;
