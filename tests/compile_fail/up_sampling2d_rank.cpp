// expect: lockstep::UpSampling2D: the input does not have height, width and channels;
#include "lockstep/layers/reshaping/up_sampling2d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::UpSampling2D<>> {};
constexpr auto count = Net::parameter_count;
