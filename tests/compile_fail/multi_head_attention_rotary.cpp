// expect: lockstep::MultiHeadAttention: ls::rotary turns pairs of elements, so the size of a head
// must be even
#include "lockstep/layers/attention/multi_head_attention.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<5, 8>, ls::MultiHeadAttention<2, 3, ls::rotary()>> {};
constexpr auto count = Net::parameter_count;
