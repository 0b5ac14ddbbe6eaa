// expect: lockstep::UpSampling2D: an option is not supported; it accepts ls::nearest
#include "lockstep/layers/reshaping/up_sampling2d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::UpSampling2D<2, ls::same>> {};
constexpr auto count = Net::parameter_count;
