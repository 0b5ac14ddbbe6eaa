// expect: lockstep::MultiHeadAttention: an option is not supported;
#include "lockstep/layers/attention/multi_head_attention.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<5, 8>, ls::MultiHeadAttention<2, 4, ls::same>> {};
constexpr auto count = Net::parameter_count;
