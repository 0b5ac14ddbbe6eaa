// expect: lockstep::Recurrent: with ls::initial_state the states are operands after the input;
#include "lockstep/layers/recurrent/gru.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<5, 3>, ls::GRU<4, ls::initial_state>> {};
constexpr auto count = Net::parameter_count;
