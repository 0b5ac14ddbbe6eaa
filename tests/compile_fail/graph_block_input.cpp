// expect: lockstep::Sequential: a block that begins with Input receives another shape; change its
// Input, or the layers before the block
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/merging/add.hpp"
#include "lockstep/model/statement_graph.hpp"

namespace ls = lockstep;
struct Sum : ls::Graph<ls::In<"a", 4>, ls::In<"b", 4>, ls::Out<"y", ls::From<"a", "b">, ls::Add>> {
};
struct Net : ls::Graph<ls::In<"left", 4>, ls::In<"right", 5>,
                       ls::Out<"y", ls::From<"left", "right">, Sum>> {};
constexpr auto count = Net::parameter_count;
