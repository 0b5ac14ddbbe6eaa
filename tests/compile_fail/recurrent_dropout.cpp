// expect: lockstep::Recurrent: dropout and recurrent_dropout must be in [0, 1); write
#include "lockstep/layers/recurrent/gru.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<5, 3>, ls::GRU<4, ls::recurrent_dropout(1)>> {};
constexpr auto count = Net::parameter_count;
