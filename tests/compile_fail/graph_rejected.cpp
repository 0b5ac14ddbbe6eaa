// expect: lockstep::Dense: the input is a scalar; put Reshape<ls::shape(1)> before Dense
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/reshaping/reshape.hpp"
#include "lockstep/model/statement_graph.hpp"

namespace ls = lockstep;
struct Net : ls::Graph<ls::In<"image", 1>, ls::Let<"a", ls::From<"image">, ls::Dense<1>>,
                       ls::Out<"y", ls::From<"a">, ls::Reshape<ls::shape()>, ls::Dense<2>>> {};
constexpr auto count = Net::parameter_count;
