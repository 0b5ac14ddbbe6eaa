// expect: lockstep::Frozen: the weights of a shared layer are frozen where it is called again, but
// train where it is called first; put Frozen around the first call
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/frozen.hpp"
#include "lockstep/model/shared.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<4>, ls::Shared<"tower", ls::Dense<4>>,
                            ls::Frozen<ls::Shared<"tower", ls::Dense<4>>>> {};
constexpr auto count = Net::parameter_count;
