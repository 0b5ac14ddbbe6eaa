// expect: lockstep::LayerNormalization: an option is not supported;
#include "lockstep/layers/normalization/layer_normalization.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::LayerNormalization<ls::same>> {};
constexpr auto count = Net::parameter_count;
