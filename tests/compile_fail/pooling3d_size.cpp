// expect: lockstep::Pooling3D: the pool size and the strides are one number or three,
#include "lockstep/layers/pooling/pooling3d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 8, 3>, ls::AveragePooling3D<ls::kernel(2, 2)>> {};
constexpr auto count = Net::parameter_count;
