// expect: lockstep::Graph: 'Statement' reads its own name or that of a statement after it; a
// graph has no cycles: put each statement after those that it reads
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/merging/add.hpp"
#include "lockstep/model/statement_graph.hpp"

namespace ls = lockstep;
struct Net
    : ls::Graph<ls::In<"image", 4>, ls::Let<"a", ls::From<"image", "b">, ls::Add, ls::Dense<4>>,
                ls::Let<"b", ls::From<"a">, ls::Dense<4>>,
                ls::Out<"y", ls::From<"b">, ls::Dense<2>>> {};
constexpr auto count = Net::parameter_count;
