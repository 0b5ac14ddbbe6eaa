// expect: lockstep::Attention: the input is not (steps, features);
#include "lockstep/layers/attention/grouped_query_attention.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<5, 8, 3>, ls::GroupedQueryAttention<4, 2, 4>> {};
constexpr auto count = Net::parameter_count;
