// expect: lockstep::Pooling2D: the pool size and the strides must be at least 1;
#include "lockstep/layers/pooling/max_pooling2d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::MaxPooling2D<2, ls::same, ls::strides(0, 1)>> {
};
constexpr auto count = Net::parameter_count;
