// expect: lockstep::Attention: the operands do not fit; query, value and key are (steps, features), value and key
// have as many steps, and with ls::attention_mask the last operand is the mask (steps of the query, steps of the key)
#include "lockstep/layers/attention/multi_head_attention.hpp"
#include "lockstep/model/statement_graph.hpp"

namespace ls = lockstep;
struct Net : ls::Graph<ls::In<"query", 4, 3>, ls::In<"value", 5, 3>, ls::In<"allowed", 5, 4>,
                       ls::Out<"y", ls::From<"query", "value", "allowed">,
                               ls::MultiHeadAttention<2, 4, ls::attention_mask>>> {};
constexpr auto count = Net::parameter_count;
