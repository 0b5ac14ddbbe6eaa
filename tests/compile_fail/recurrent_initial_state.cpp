// expect: lockstep::Recurrent: the operands do not fit; the input is (steps, features), and each initial state has as
// many elements as the layer has units
#include "lockstep/layers/recurrent/lstm.hpp"
#include "lockstep/model/statement_graph.hpp"

namespace ls = lockstep;
struct Net : ls::Graph<ls::In<"x", 5, 3>, ls::In<"h", 4>, ls::In<"c", 5>,
                       ls::Out<"y", ls::From<"x", "h", "c">, ls::LSTM<4, ls::initial_state>>> {};
constexpr auto count = Net::parameter_count;
