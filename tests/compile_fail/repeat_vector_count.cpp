// expect: lockstep::RepeatVector: the number of repetitions must be at least 1;
#include "lockstep/layers/reshaping/repeat_vector.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::RepeatVector<0>> {};
constexpr auto count = Net::parameter_count;
