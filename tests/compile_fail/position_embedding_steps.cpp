// expect: lockstep::PositionEmbedding: the input is not (steps, features) with at most as many steps
// as positions;
#include "lockstep/layers/position_embedding.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<9, 4>, ls::PositionEmbedding<8>> {};
constexpr auto count = Net::parameter_count;
