// expect: lockstep::UpSampling1D: the input does not have steps and channels;
#include "lockstep/layers/reshaping/up_sampling1d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::UpSampling1D<>> {};
constexpr auto count = Net::parameter_count;
