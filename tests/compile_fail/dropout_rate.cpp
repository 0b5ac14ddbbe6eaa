// expect: lockstep::Dropout: the rate must be in [0, 1); write Dropout<rate(0.25f)>
#include "lockstep/layers/regularization/dropout.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::Dropout<1>> {};
constexpr auto count = Net::parameter_count;
