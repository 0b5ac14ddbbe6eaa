// expect: lockstep::Shared: 'Layer' has the key of a layer of another type; layers with one key
// are the same layer: write the same type, or another key
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/shared.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<4>, ls::Shared<"tower", ls::Dense<4>>,
                            ls::Shared<"tower", ls::Dense<3>>> {};
constexpr auto count = Net::parameter_count;
