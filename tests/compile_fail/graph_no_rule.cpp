// expect: lockstep::Graph: 'Statement' reads several values without a rule that merges them; write
// it after From: Let<name, From<names...>, ls::Concatenate, layers...>
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/statement_graph.hpp"

namespace ls = lockstep;
struct Net : ls::Graph<ls::In<"left", 4>, ls::In<"right", 5>,
                       ls::Out<"y", ls::From<"left", "right">, ls::Dense<2>>> {};
constexpr auto count = Net::parameter_count;
