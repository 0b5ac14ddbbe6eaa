// expect: lockstep::Resizing: height and width must be at least 1; write Resizing<32, 32>
#include "lockstep/layers/preprocessing/resizing.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::Resizing<0, 4>> {};
constexpr auto count = Net::parameter_count;
