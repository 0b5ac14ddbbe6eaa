// expect: lockstep::GroupedQueryAttention: the number of query heads is not a multiple of the
// number of key and value heads
#include "lockstep/layers/attention/grouped_query_attention.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<5, 8>, ls::GroupedQueryAttention<3, 2, 4>> {};
constexpr auto count = Net::parameter_count;
