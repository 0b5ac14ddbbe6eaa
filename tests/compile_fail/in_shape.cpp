// expect: lockstep::In: the shape is not a list of extents; write In<name, 28, 28, 1> or In<name,
// ls::Integers<64>>
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/statement_graph.hpp"

namespace ls = lockstep;
struct Net
    : ls::Graph<ls::In<"image", ls::no_bias>, ls::Out<"y", ls::From<"image">, ls::Dense<2>>> {};
constexpr auto count = Net::parameter_count;
