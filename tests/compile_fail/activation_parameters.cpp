// expect: lockstep::activation: the layer has parameters or changes the shape;
#include "lockstep/layers/layers.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::Dense<4, ls::activation<ls::LayerNormalization<>>>> {
};
constexpr auto count = Net::parameter_count;
