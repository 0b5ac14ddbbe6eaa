// expect: lockstep::Graph: there is no input; begin with In<name, extents...>
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/statement_graph.hpp"

namespace ls = lockstep;
struct Net : ls::Graph<> {};
constexpr auto count = Net::parameter_count;
