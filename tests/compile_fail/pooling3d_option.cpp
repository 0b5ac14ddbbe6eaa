// expect: lockstep::Pooling3D: an option is not supported;
#include "lockstep/layers/pooling/pooling3d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 8, 3>, ls::MaxPooling3D<2, ls::dilation(2)>> {};
constexpr auto count = Net::parameter_count;
