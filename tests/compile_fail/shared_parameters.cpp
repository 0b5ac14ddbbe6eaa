// expect: lockstep::Shared: 'Layer' would have parameters of other shapes for its second input
// than for its first; give all calls of a shared layer inputs for which they are equal
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/shared.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<5>, ls::Shared<"tower", ls::Dense<4>>,
                            ls::Shared<"tower", ls::Dense<4>>> {};
constexpr auto count = Net::parameter_count;
