// expect: lockstep::MultiHeadAttention: the rate of dropout must be in [0, 1);
#include "lockstep/layers/attention/multi_head_attention.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<5, 8>, ls::MultiHeadAttention<2, 4, ls::dropout(1.0)>> {};
constexpr auto count = Net::parameter_count;
