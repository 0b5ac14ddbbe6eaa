// expect: lockstep::Pooling2D: the input does not have height, width and channels; put pooling
#include "lockstep/layers/pooling/average_pooling2d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::AveragePooling2D<2>> {};
constexpr auto count = Net::parameter_count;
