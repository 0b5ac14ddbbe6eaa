// expect: lockstep::RepeatVector: the input is not a vector;
#include "lockstep/layers/reshaping/repeat_vector.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 1>, ls::RepeatVector<2>> {};
constexpr auto count = Net::parameter_count;
