// expect: lockstep::Repeat: the count must be at least 0; write Repeat<count, Block>
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/repeat.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::Repeat<-1, ls::Dense<8>>> {};
constexpr auto count = Net::parameter_count;
