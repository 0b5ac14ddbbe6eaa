// expect: lockstep::Graph: 'Statement' has the name of a statement before it; rename one
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/statement_graph.hpp"

namespace ls = lockstep;
struct Net : ls::Graph<ls::In<"image", 4>, ls::Let<"a", ls::From<"image">, ls::Dense<3>>,
                       ls::Let<"a", ls::From<"a">, ls::Dense<3>>,
                       ls::Out<"y", ls::From<"a">, ls::Dense<2>>> {};
constexpr auto count = Net::parameter_count;
