// expect: lockstep::Masking: the input does not have steps and features; put
#include "lockstep/layers/recurrent/masking.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<5>, ls::Masking<0.5>> {};
constexpr auto count = Net::parameter_count;
