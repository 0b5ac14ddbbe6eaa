// expect: lockstep::TimeDistributed: the layer has state; it accepts layers without
#include "lockstep/layers/normalization/batch_normalization.hpp"
#include "lockstep/layers/recurrent/time_distributed.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<5, 3>, ls::TimeDistributed<ls::BatchNormalization<>>> {};
constexpr auto count = Net::parameter_count;
