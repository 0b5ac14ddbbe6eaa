// expect: lockstep::UpSampling1D: the factor must be at least 1;
#include "lockstep/layers/reshaping/up_sampling1d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 1>, ls::UpSampling1D<0>> {};
constexpr auto count = Net::parameter_count;
