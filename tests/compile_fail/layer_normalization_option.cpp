// expect: lockstep::LayerNormalization: an option does not apply to it;
#include "lockstep/layers/layer_normalization.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::LayerNormalization<ls::same>> {};
constexpr auto count = Net::parameter_count;
