// expect: lockstep::MultiHeadAttention: heads, key_dim, value_dim and output_shape must be
#include "lockstep/layers/attention/multi_head_attention.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<5, 8>, ls::MultiHeadAttention<2, 0>> {};
constexpr auto count = Net::parameter_count;
