// expect: lockstep::LayerNormalization: one of the options is not for it;
#include "lockstep/layers/layer_normalization.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::LayerNormalization<ls::same>> {};
constexpr auto count = Net::parameter_count;
