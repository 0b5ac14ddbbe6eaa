// expect: lockstep::Cpu: no oneDNN type for this element type; use Float32 or MixedBFloat16
#include "lockstep/devices/cpu/onednn.hpp"

const auto type = lockstep::detail::onednn::data_type<double>();
