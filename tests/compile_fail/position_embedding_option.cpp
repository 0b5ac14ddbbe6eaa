// expect: lockstep::PositionEmbedding: an option is not supported;
#include "lockstep/layers/position_embedding.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 4>, ls::PositionEmbedding<8, ls::no_bias>> {};
constexpr auto count = Net::parameter_count;
