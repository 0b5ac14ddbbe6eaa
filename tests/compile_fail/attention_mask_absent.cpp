// expect: lockstep::Attention: with ls::attention_mask the mask is the last operand;
#include "lockstep/layers/attention/grouped_query_attention.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net
    : ls::Sequential<ls::Input<8, 4>, ls::GroupedQueryAttention<2, 1, 4, ls::attention_mask>> {};
constexpr auto count = Net::parameter_count;
