// expect: lockstep::SpatialDropout2D: the input does not have height, width and channels;
#include "lockstep/layers/regularization/spatial_dropout2d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::SpatialDropout2D<ls::rate(0.5f)>> {};
constexpr auto count = Net::parameter_count;
