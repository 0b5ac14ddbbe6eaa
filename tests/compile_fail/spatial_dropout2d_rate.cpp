// expect: lockstep::SpatialDropout2D: the rate must be in [0, 1);
#include "lockstep/layers/regularization/spatial_dropout2d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::SpatialDropout2D<ls::rate(1)>> {};
constexpr auto count = Net::parameter_count;
