// expect: lockstep::Attention: the input is not (steps, features);
#include "lockstep/layers/attention/multi_head_attention.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::MultiHeadAttention<2, 4>> {};
constexpr auto count = Net::parameter_count;
