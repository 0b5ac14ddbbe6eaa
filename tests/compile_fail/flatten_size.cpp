// expect: lockstep::Flatten: the input has 2^31 elements or more, which overflows an extent;
#include "lockstep/layers/reshaping/flatten.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<32768, 65536>, ls::Flatten> {};
constexpr auto count = Net::parameter_count;
