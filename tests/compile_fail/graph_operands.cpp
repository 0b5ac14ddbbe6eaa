// expect: lockstep::Graph: 'Statement' reads another number of values than its layer accepts; Subtract
// and Dot merge two
#include "lockstep/layers/merging/subtract.hpp"
#include "lockstep/model/statement_graph.hpp"

namespace ls = lockstep;
struct Net : ls::Graph<ls::In<"a", 4>, ls::In<"b", 4>, ls::In<"c", 4>,
                       ls::Out<"y", ls::From<"a", "b", "c">, ls::Subtract>> {};
constexpr auto count = Net::parameter_count;
