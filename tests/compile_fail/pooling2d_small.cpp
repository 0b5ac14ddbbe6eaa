// expect: lockstep::Pooling2D: the input is smaller than the pool; use a smaller pool or ls::same
#include "lockstep/layers/pooling/max_pooling2d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::MaxPooling2D<9>> {};
constexpr auto count = Net::parameter_count;
