// expect: lockstep::Recurrent: units must be at least 1; write LSTM<units>
#include "lockstep/layers/recurrent/lstm.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<5, 3>, ls::LSTM<0>> {};
constexpr auto count = Net::parameter_count;
