// expect: lockstep::Cropping2D: the cropping of each side must be at least 0;
#include "lockstep/layers/reshaping/cropping2d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 1>, ls::Cropping2D<ls::edges(0, -1)>> {};
constexpr auto count = Net::parameter_count;
