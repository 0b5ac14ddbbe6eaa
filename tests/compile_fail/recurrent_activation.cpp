// expect: lockstep::Recurrent: an activation is not element-wise; use it as a layer after this one
#include "lockstep/layers/recurrent/lstm.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<5, 3>, ls::LSTM<4, ls::softmax>> {};
constexpr auto count = Net::parameter_count;
