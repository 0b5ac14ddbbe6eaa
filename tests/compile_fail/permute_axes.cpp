// expect: lockstep::Permute: the axes must be the numbers from 1 on, each once;
#include "lockstep/layers/reshaping/permute.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 1>, ls::Permute<0, 1>> {};
constexpr auto count = Net::parameter_count;
