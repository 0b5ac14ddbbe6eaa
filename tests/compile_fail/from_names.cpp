// expect: lockstep::Graph: the second argument of Let and Out names what they read; write
// Let<name, ls::From<names...>, layers...>
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/statement_graph.hpp"

namespace ls = lockstep;
struct Net : ls::Graph<ls::In<"image", 4>, ls::Out<"y", ls::Dense<2>>> {};
constexpr auto count = Net::parameter_count;
