// expect: lockstep::RandomCutout: the side must be at least 1 and the fill a constant;
#include "lockstep/layers/preprocessing/random_cutout.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::RandomCutout<4, ls::fill_wrap>> {};
constexpr auto count = Net::parameter_count;
