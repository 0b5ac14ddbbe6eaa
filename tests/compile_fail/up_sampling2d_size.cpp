// expect: lockstep::UpSampling2D: the factors must be at least 1;
#include "lockstep/layers/reshaping/up_sampling2d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::UpSampling2D<ls::size(2, 0)>> {};
constexpr auto count = Net::parameter_count;
