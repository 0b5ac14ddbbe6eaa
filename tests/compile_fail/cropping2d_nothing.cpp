// expect: lockstep::Cropping2D: nothing is left of the input; crop fewer rows or columns
#include "lockstep/layers/reshaping/cropping2d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 1>, ls::Cropping2D<ls::edges(0, 4)>> {};
constexpr auto count = Net::parameter_count;
