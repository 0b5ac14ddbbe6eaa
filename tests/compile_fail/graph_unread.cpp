// expect: lockstep::Graph: no statement reads 'Statement'; name it in a From, or remove it
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/statement_graph.hpp"

namespace ls = lockstep;
struct Net : ls::Graph<ls::In<"image", 4>, ls::In<"words", 5>,
                       ls::Out<"y", ls::From<"image">, ls::Dense<2>>> {};
constexpr auto count = Net::parameter_count;
