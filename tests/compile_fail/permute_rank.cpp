// expect: lockstep::Permute: the input has another number of axes;
#include "lockstep/layers/reshaping/permute.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 1>, ls::Permute<2, 1>> {};
constexpr auto count = Net::parameter_count;
