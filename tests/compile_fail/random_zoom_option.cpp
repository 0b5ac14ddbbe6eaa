// expect: lockstep::Augmentation: an option is not supported; it accepts
#include "lockstep/layers/preprocessing/random_zoom.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::RandomZoom<ls::factor(0.5), ls::strides(2)>> {};
constexpr auto count = Net::parameter_count;
