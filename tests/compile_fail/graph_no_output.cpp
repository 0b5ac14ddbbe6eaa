// expect: lockstep::Graph: there is no output; end with Out<name, From<names...>, layers...>
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/statement_graph.hpp"

namespace ls = lockstep;
struct Net : ls::Graph<ls::In<"image", 4>, ls::Let<"a", ls::From<"image">, ls::Dense<3>>> {};
constexpr auto count = Net::parameter_count;
