// expect: lockstep::GlobalPooling3D: the input does not have depth, height, width and channels;
#include "lockstep/layers/pooling/global_pooling3d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::GlobalAveragePooling3D> {};
constexpr auto count = Net::parameter_count;
