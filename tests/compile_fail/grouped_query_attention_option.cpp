// expect: lockstep::GroupedQueryAttention: an option is not supported;
#include "lockstep/layers/attention/grouped_query_attention.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<5, 8>, ls::GroupedQueryAttention<4, 2, 4, ls::value_dim(3)>> {
};
constexpr auto count = Net::parameter_count;
