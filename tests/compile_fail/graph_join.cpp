// expect: lockstep::Graph: the shapes of two values that a statement merges do not fit;
// Concatenate needs shapes that differ only on its axis, Dot axes of equal extents, the other
// rules equal shapes
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/merging/add.hpp"
#include "lockstep/model/statement_graph.hpp"

namespace ls = lockstep;
struct Net : ls::Graph<ls::In<"left", 4>, ls::In<"right", 5>,
                       ls::Out<"y", ls::From<"left", "right">, ls::Add, ls::Dense<2>>> {};
constexpr auto count = Net::parameter_count;
