// expect: lockstep::Recurrent: an option is not supported; it accepts return_sequences, return_state,
#include "lockstep/layers/recurrent/simple_rnn.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<5, 3>, ls::SimpleRNN<4, ls::recurrent_activation(ls::relu)>> {
};
constexpr auto count = Net::parameter_count;
