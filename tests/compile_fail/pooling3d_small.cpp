// expect: lockstep::Pooling3D: the input is smaller than the pool;
#include "lockstep/layers/pooling/pooling3d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<2, 8, 8, 3>, ls::AveragePooling3D<3>> {};
constexpr auto count = Net::parameter_count;
