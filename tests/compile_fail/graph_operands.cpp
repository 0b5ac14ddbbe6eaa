// expect: lockstep::Graph: 'Statement' reads more values than its rule merges; Subtract and Dot
// merge two
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/merging/subtract.hpp"
#include "lockstep/model/statement_graph.hpp"

namespace ls = lockstep;
struct Net : ls::Graph<ls::In<"x", 4>, ls::Let<"a", ls::From<"x">, ls::Dense<4>>,
                       ls::Out<"y", ls::From<"a", "x", "a">, ls::Subtract>> {};
constexpr auto count = Net::parameter_count;
