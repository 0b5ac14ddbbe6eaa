// expect: lockstep::BatchNormalization: an option is not supported; it accepts
#include "lockstep/layers/normalization/batch_normalization.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::BatchNormalization<ls::same>> {};
constexpr auto count = Net::parameter_count;
