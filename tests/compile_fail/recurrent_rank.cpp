// expect: lockstep::Recurrent: the input does not have steps and features; put
#include "lockstep/layers/recurrent/gru.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<5>, ls::GRU<4>> {};
constexpr auto count = Net::parameter_count;
