// expect: lockstep::Cropping1D: nothing is left of the input; crop fewer steps
#include "lockstep/layers/reshaping/cropping1d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 1>, ls::Cropping1D<4>> {};
constexpr auto count = Net::parameter_count;
