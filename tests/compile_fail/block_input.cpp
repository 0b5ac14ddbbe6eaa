// expect: lockstep::Sequential: a block that begins with Input receives another shape; change its
// Input, or the layers before the block
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Decoder : ls::Sequential<ls::Input<5>, ls::Dense<4>> {};
struct Net : ls::Sequential<ls::Input<8>, Decoder> {};
constexpr auto count = Net::parameter_count;
