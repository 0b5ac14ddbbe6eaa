// expect: lockstep::GlobalAveragePooling2D: the input does not have height, width and channels;
#include "lockstep/layers/pooling/global_average_pooling2d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::GlobalAveragePooling2D> {};
constexpr auto count = Net::parameter_count;
