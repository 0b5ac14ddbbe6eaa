// expect: lockstep::Graph: 'Statement' reads a name that no statement has; write the name of an
// In, Let or Out in its From
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/statement_graph.hpp"

namespace ls = lockstep;
struct Net : ls::Graph<ls::In<"image", 4>, ls::Let<"a", ls::From<"image">, ls::Dense<3>>,
                       ls::Out<"y", ls::From<"b">, ls::Dense<2>>> {};
constexpr auto count = Net::parameter_count;
