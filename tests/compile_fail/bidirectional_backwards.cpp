// expect: lockstep::Bidirectional: the layer has go_backwards; leave it out, since one of
#include "lockstep/layers/recurrent/gru.hpp"
#include "lockstep/model/bidirectional.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<5, 3>, ls::Bidirectional<ls::GRU<4, ls::go_backwards>>> {};
constexpr auto count = Net::parameter_count;
