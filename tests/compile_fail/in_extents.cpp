// expect: lockstep::In: extents must be at least 1 and at most four; the batch is not an extent
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/statement_graph.hpp"

namespace ls = lockstep;
struct Net : ls::Graph<ls::In<"image", 4, 0>, ls::Out<"y", ls::From<"image">, ls::Dense<2>>> {};
constexpr auto count = Net::parameter_count;
