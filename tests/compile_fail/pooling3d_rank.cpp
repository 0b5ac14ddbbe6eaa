// expect: lockstep::Pooling3D: the input does not have depth, height, width and channels;
#include "lockstep/layers/pooling/pooling3d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::MaxPooling3D<2>> {};
constexpr auto count = Net::parameter_count;
