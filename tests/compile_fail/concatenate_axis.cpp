// expect: lockstep::Concatenate: axis 0 is the batch; the axes of an example begin with 1, and -1 is
// the last
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/merging/concatenate.hpp"
#include "lockstep/model/parallel.hpp"

namespace ls = lockstep;
struct Net
    : ls::Sequential<ls::Input<8>, ls::Parallel<ls::ConcatenateOn<0>, ls::Dense<4>, ls::Dense<4>>> {
};
constexpr auto count = Net::parameter_count;
