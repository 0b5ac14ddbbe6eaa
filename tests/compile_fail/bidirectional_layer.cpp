// expect: lockstep::Bidirectional: the layer is not recurrent; write Bidirectional<ls::LSTM<units>>
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/bidirectional.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<5, 3>, ls::Bidirectional<ls::Dense<4>>> {};
constexpr auto count = Net::parameter_count;
