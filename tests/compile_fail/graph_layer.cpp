// expect: lockstep::Graph: an argument is not a statement; write layers into a Let or Out:
// Let<name, From<names...>, layers...>
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/statement_graph.hpp"

namespace ls = lockstep;
struct Net : ls::Graph<ls::In<"image", 4>, ls::Dense<2>> {};
constexpr auto count = Net::parameter_count;
